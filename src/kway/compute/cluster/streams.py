"""stream: items through workers that are made once and live on; what each gives, as it comes.

    for result in stream(make, items):    make() -> worker;  worker(item) -> plain values by name

In this process one after another; on a cluster through a dataset of Ray's, a worker a node. One that dies is made again
and given its item again, so a worker must bear to do an item twice. A caller that reached the cluster as a client
(ray://) is no part of it, and Ray's datasets want to be: there an actor holds the dataset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kway.compute.cluster.session import current, import_ray, node_cores
from kway.errors import ClusterError, InputError, KwayError

Worker = Callable[[Any], dict[str, Any]]
_ITEM, _WRONG, _REFUSED = "item", "wrong", "refused"


def stream(make: Callable[[], Worker], items: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """The results, in the order of their ends."""
    if current() is None or not items:
        yield from map(make(), items) if items else ()
        return
    for result in _results(make, items):
        if result[_WRONG]:
            raise (InputError if result[_REFUSED] else ClusterError)(result[_WRONG])
        yield {name: value for name, value in result.items() if name not in (_WRONG, _REFUSED)}


def _results(make: Callable[[], Worker], items: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """What the dataset gives, wherever it is held."""
    ray = import_ray()
    from ray.util.client import ray as client

    if not client.is_connected():
        yield from _dataset(make, items).iter_rows()
        return
    holder = ray.remote(Holder).options(num_cpus=0.01).remote(make, list(items))
    try:
        while (result := ray.get(holder.next.remote())) is not None:
            yield result
    except ray.exceptions.RayError as error:
        said = str(getattr(error, "cause", None) or error).strip().splitlines()[-1]
        raise ClusterError(f"who held the items on the cluster failed ({said}); run the same again") from error
    finally:
        ray.kill(holder)


class Holder:
    """What lives on the cluster for a client: the dataset, asked for one result after another."""

    def __init__(self, make: Callable[[], Worker], items: list[Any]) -> None:
        self.results = iter(_dataset(make, items).iter_rows())

    def next(self) -> dict[str, Any] | None:
        """Another result; None behind the last."""
        return next(self.results, None)


def _dataset(make: Callable[[], Worker], items: Sequence[Any]) -> Any:
    """A block an item: what is lost with a worker is the item it was at."""
    import_ray()
    try:
        from ray import data
    except ImportError as error:
        raise ClusterError(f"streaming needs Ray's data library ({error}); pip install 'kway[cluster]'") from error

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    data.DataContext.get_current().enable_progress_bars = False  # kway draws its own
    numbers = data.from_items([{_ITEM: i} for i in range(len(items))], override_num_blocks=len(items))
    cores = node_cores()
    most = max(1, min(len(items), cores.workers))
    return numbers.map(
        Station,
        fn_constructor_args=(make, list(items)),
        compute=data.ActorPoolStrategy(min_size=1, max_size=most),
        num_cpus=cores.each,
    )


class Station:
    """What lives in a process of the cluster: a worker and the items; what goes wrong is told, not raised."""

    def __init__(self, make: Callable[[], Worker], items: list[Any]) -> None:
        self.work, self.items = make(), items

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The result of an item."""
        told = {_WRONG: "", _REFUSED: False}
        try:
            return {**self.work(self.items[int(row[_ITEM])]), **told}
        except KwayError as error:
            return {_WRONG: str(error), _REFUSED: True}
        except Exception as error:
            return {_WRONG: f"a worker of the cluster failed: {type(error).__name__}: {error}", _REFUSED: False}

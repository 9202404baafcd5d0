"""Work on the nodes of a cluster: items streamed through workers, and calls whose results are fetched later.

    for result in stream(make, items)    make() -> worker;  worker(item) -> plain values by name
    data = send(rows)                    sent to each node once, however many calls take it
    task = begin(f, data, 3)             f(rows, 3), on some node, with all of its cores
    task.result()                        what it returned, or the error it raised

Without a cluster, the items are processed one after another in this process. If the node of a worker or a call dies, it
is started again with the same arguments, so workers and calls must be repeatable. Ray's datasets only work in a process
of the cluster. A client (ray://) is not one, so that an actor holds the dataset for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kway.errors import ClusterError, InputError, KwayError
from kway.rows.cluster.session import current, import_ray, node_cores
from kway.rows.cluster.shards import as_kway_error

Worker = Callable[[Any], dict[str, Any]]
_ITEM, _ERROR, _IS_INPUT_ERROR = "item", "wrong", "refused"  # columns of the dataset


def stream(make: Callable[[], Worker], items: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the results of make()(item) for all items, in the order in which they are finished."""
    if current() is None or not items:
        yield from map(make(), items) if items else ()
        return
    for result in _results(make, items):
        if result[_ERROR]:
            raise (InputError if result[_IS_INPUT_ERROR] else ClusterError)(result[_ERROR])
        yield {name: value for name, value in result.items() if name not in (_ERROR, _IS_INPUT_ERROR)}


def _results(make: Callable[[], Worker], items: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the dataset, which an actor holds for a client."""
    ray = import_ray()
    from ray.util.client import ray as client

    if not client.is_connected():
        yield from _dataset(make, items).iter_rows()
        return
    holder = ray.remote(DatasetActor).options(num_cpus=0.01).remote(make, list(items))
    try:
        while (result := ray.get(holder.next.remote())) is not None:
            yield result
    except ray.exceptions.RayError as error:
        reason = str(getattr(error, "cause", None) or error).strip().splitlines()[-1]
        raise ClusterError(f"the Ray actor that held the items failed ({reason}); run the command again") from error
    finally:
        ray.kill(holder)


class DatasetActor:
    """The actor that holds the dataset for a client and returns one result after another."""

    def __init__(self, make: Callable[[], Worker], items: list[Any]) -> None:
        self.results = iter(_dataset(make, items).iter_rows())

    def next(self) -> dict[str, Any] | None:
        """Return the next result; None after the last."""
        return next(self.results, None)


def _dataset(make: Callable[[], Worker], items: Sequence[Any]) -> Any:
    """Return a dataset with one block per item, so that a lost worker costs only its current item."""
    import_ray()
    try:
        from ray import data
    except ImportError as error:
        raise ClusterError(f"streaming needs Ray's data library ({error}); pip install 'ray[client,data]'") from error

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    data.DataContext.get_current().enable_progress_bars = False  # kway draws its own
    numbers = data.from_items([{_ITEM: i} for i in range(len(items))], override_num_blocks=len(items))
    cores = node_cores()
    max_workers = max(1, min(len(items), cores.workers))
    return numbers.map(
        ItemWorker,
        fn_constructor_args=(make, list(items)),
        compute=data.ActorPoolStrategy(min_size=1, max_size=max_workers),
        num_cpus=cores.each,
    )


class ItemWorker:
    """A worker and its items in a process of the cluster; errors are returned, not raised."""

    def __init__(self, make: Callable[[], Worker], items: list[Any]) -> None:
        self.work, self.items = make(), items

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the result of an item, or the message of its error."""
        no_error = {_ERROR: "", _IS_INPUT_ERROR: False}
        try:
            return {**self.work(self.items[int(row[_ITEM])]), **no_error}
        except KwayError as error:
            return {_ERROR: str(error), _IS_INPUT_ERROR: True}
        except Exception as error:
            return {_ERROR: f"a worker of the cluster failed: {type(error).__name__}: {error}", _IS_INPUT_ERROR: False}


class Task:
    """A running call."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def result(self) -> Any:
        """Return the result of the call; raise the kway error that it raised."""
        ray = import_ray()
        try:
            return ray.get(self._answer)
        except ray.exceptions.RayError as error:
            raise as_kway_error(error) from error

    def cancel(self) -> None:
        """Cancel the call."""
        import_ray().cancel(self._answer, force=True)


def send(value: Any) -> Any:
    """Send a value to the cluster once; the returned reference can be an argument of `begin`."""
    return import_ray().put(value)


def begin(f: Callable[..., Any], *arguments: Any) -> Task:
    """Start a call on the first node with free cores."""
    options = {"num_cpus": node_cores().each, "max_retries": -1, "scheduling_strategy": "SPREAD"}
    return Task(import_ray().remote(f).options(**options).remote(*arguments))

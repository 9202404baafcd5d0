"""Calls on the nodes of a cluster, each with more than half of the cores of a node.

    for result in stream(make, items)    make() -> worker;  worker(item) -> a result
    data = send(rows)                    sent to each node once, however many calls take it
    task = begin(f, data, 3)             f(rows, 3), on some node, with all of its cores
    task.result()                        what it returned, or the error it raised

Without a cluster, the items are processed one after another in this process. If the node of a call dies, the call is
repeated with the same arguments, so calls must be repeatable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from kway.rows.cluster.session import current, import_ray, node_cores
from kway.rows.cluster.shards import as_kway_error

Worker = Callable[[Any], Any]


def stream(make: Callable[[], Worker], items: Sequence[Any]) -> Iterator[Any]:
    """Yield the results of make()(item) for all items, in the order in which they are finished."""
    if current() is None or not items:
        yield from map(make(), items) if items else ()
        return
    maker, start = [send(make)], _starter(process_item)  # Ray replaces a reference by its value, unless it is in a list
    tasks = {task.answer: task for task in (start(maker, item) for item in items)}
    try:
        while tasks:
            done, _ = import_ray().wait(list(tasks), num_returns=1)
            yield tasks.pop(done[0]).result()
    finally:
        for task in tasks.values():
            task.cancel()


def process_item(maker: list[Any], item: Any) -> Any:
    """Return the result of an item; called on a node."""
    return _worker(maker[0])(item)


@lru_cache(maxsize=1)
def _worker(maker: Any) -> Worker:
    """Make the worker of this process, which further calls reuse."""
    worker: Worker = import_ray().get(maker)()
    return worker


class Task:
    """A running call."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def result(self) -> Any:
        """Return the result of the call; raise the kway error that it raised."""
        ray = import_ray()
        try:
            return ray.get(self.answer)
        except ray.exceptions.RayError as error:
            raise as_kway_error(error) from error

    def cancel(self) -> None:
        """Cancel the call."""
        import_ray().cancel(self.answer, force=True)


def send(value: Any) -> Any:
    """Send a value to the cluster once; the returned reference can be an argument of `begin`."""
    return import_ray().put(value)


def begin(f: Callable[..., Any], *arguments: Any) -> Task:
    """Start a call on the first node with free cores."""
    return _starter(f)(*arguments)


def _starter(f: Callable[..., Any]) -> Callable[..., Task]:
    """Return a function that starts calls of f."""
    options = {"num_cpus": node_cores().each, "max_retries": -1, "scheduling_strategy": "SPREAD"}
    remote = import_ray().remote(f).options(**options)
    return lambda *arguments: Task(remote.remote(*arguments))

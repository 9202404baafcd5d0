"""Tasks: calls begun at once on the nodes of a cluster, their results fetched when they are needed.

    data = send(rows)                 sent to each node once, however many calls take it
    task = begin(f, data, 3)           f(rows, 3), on some node, with all of its cores
    task.result()                      what it gave, or the error it raised

A call whose worker or node dies is made again, so f must bear that; it is a function of a module, and leaves its
arguments as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kway.compute.cluster.session import import_ray, node_cores
from kway.errors import ClusterError, KwayError


class Task:
    """A call under way."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def result(self) -> Any:
        """What the call gave; an error of kway's is raised as it was there."""
        ray = import_ray()
        try:
            found = ray.get(self._answer)
        except ray.exceptions.RayError as error:
            said = str(getattr(error, "cause", None) or error).strip().splitlines()
            raise ClusterError(f"a worker of the cluster failed: {said[-1] if said else error!r}") from error
        if isinstance(found, KwayError):
            raise found
        return found

    def cancel(self) -> None:
        """The result is not needed any more."""
        import_ray().cancel(self._answer, force=True)


def send(value: Any) -> Any:
    """Stands for a value among the arguments of `begin`."""
    return import_ray().put(value)


def begin(f: Callable[..., Any], *arguments: Any) -> Task:
    """The call, on the node that has room first."""
    options = {"num_cpus": node_cores().each, "max_retries": -1, "scheduling_strategy": "SPREAD"}
    return Task(import_ray().remote(_told).options(**options).remote(f, *arguments))


def _told(f: Callable[..., Any], *arguments: Any) -> Any:
    """kway's errors are results: Ray would wrap them."""
    try:
        return f(*arguments)
    except KwayError as error:
        return error

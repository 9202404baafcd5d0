"""The one worker pool: `pmap(f, items)` runs f over items on all cores, BLAS held to one thread inside.

Alternating a multi-threaded BLAS with other threads makes both wait for the cores (8 to 25 times slower), so
whoever works in parallel does it here: numpy, BLAS and `nogil` kernels all let go of the GIL, one thread a core.

    n_jobs   None or -1: every core (scikit-learn's None means one; kway's default uses the machine)
             m > 0: at most m threads;  -m: all cores but m - 1

A forked child makes a pool of its own. Forking while other threads predict is another matter: os.fork() may not return
(seen with three threads that predict all the time; most likely OpenBLAS waits for those inside it). Use "spawn" or
"forkserver" there, or fork before the threads start.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_lock = threading.RLock()
_local = threading.local()  # .inside: this thread is a worker, so nested work runs where it stands
_pool: ThreadPoolExecutor | None = None
_controller: Any = None
_guards = 0  # how many callers hold BLAS at one thread
_limiter: Any = None


def cores() -> int:
    """Cores this process may use, which a container can hold below the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers(n_jobs: int | None = None) -> int:
    """Number of threads that `n_jobs` stands for; 1 inside a worker."""
    if getattr(_local, "inside", False):
        return 1
    if n_jobs is None:
        return cores()
    if n_jobs == 0:
        raise ValueError("n_jobs == 0 has no meaning; use None for all cores or a positive number")
    return max(1, cores() + 1 + n_jobs) if n_jobs < 0 else min(n_jobs, cores())


def _shared_pool() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(cores(), thread_name_prefix="kway")
        return _pool


def _blas_controller() -> Any:
    """Made after scipy's own BLAS has loaded, or it would be missed and fight the pool for the cores."""
    global _controller
    if _controller is None:
        import scipy.linalg  # noqa: F401
        from threadpoolctl import ThreadpoolController

        _controller = ThreadpoolController()
    return _controller


@contextmanager
def single_blas() -> Iterator[None]:
    """BLAS on one thread while anybody is inside.

    Counted: overlapping limits would otherwise restore in the wrong order and leave BLAS at one thread for good.
    """
    global _guards, _limiter
    with _lock:
        if _guards == 0:
            _limiter = _blas_controller().limit(limits=1)
        _guards += 1
    try:
        yield
    finally:
        with _lock:
            _guards -= 1
            if _guards == 0:
                _limiter.restore_original_limits()
                _limiter = None


def _enter(f: Callable[[Item], Result], item: Item) -> Result:
    _local.inside = True
    try:
        return f(item)
    finally:
        _local.inside = False


def pmap(f: Callable[[Item], Result], items: Iterable[Item], n_jobs: int | None = None) -> list[Result]:
    """[f(item) for item in items], on the pool; the first error is raised after all have ended.

    Work asked for inside a worker runs at once in that worker: no thread waits for another.

    >>> pmap(lambda v: v * v, range(4))
    [0, 1, 4, 9]
    """
    todo = list(items)
    m = min(workers(n_jobs), len(todo))
    with single_blas():
        if m <= 1:
            return [f(item) for item in todo]
        if m >= cores():
            futures = [_shared_pool().submit(_enter, f, item) for item in todo]
            return _results(futures)
        lanes = [todo[i::m] for i in range(m)]  # fewer threads than cores: one future a thread
        parts = _results([_shared_pool().submit(_enter, lambda lane: [f(v) for v in lane], lane) for lane in lanes])
        return [parts[i % m][i // m] for i in range(len(todo))]


def _results(futures: list[Future[Result]]) -> list[Result]:
    errors = [e for e in (future.exception() for future in futures) if e is not None]
    if errors:
        raise errors[0]
    return [future.result() for future in futures]


def spans(n: int, size: int) -> list[slice]:
    """Slices of at most `size` that cover range(n) in order.

    >>> spans(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(a, min(n, a + size)) for a in range(0, n, max(1, size))]


def shares(n: int, n_jobs: int | None = None, least: int = 1) -> list[slice]:
    """range(n) cut into one slice a thread, none under `least` long."""
    parts = max(1, min(workers(n_jobs), n // max(1, least)))
    edges = [n * i // parts for i in range(parts + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def _hold_before_fork() -> None:
    """Nobody is half way through taking or giving back BLAS's threads while the process is copied."""
    _lock.acquire()


def _go_on_after_fork() -> None:
    _lock.release()


def _forget_after_fork() -> None:
    """A forked child has the pool object but none of its threads, and a lock that nobody will open."""
    global _pool, _lock, _guards, _limiter
    if _limiter is not None:
        _limiter.restore_original_limits()
    _pool, _lock, _guards, _limiter = None, threading.RLock(), 0, None
    _local.inside = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_before_fork, after_in_parent=_go_on_after_fork, after_in_child=_forget_after_fork)

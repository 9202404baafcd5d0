"""The worker pool: `pmap(f, items)` runs f over items on all cores, with BLAS limited to one thread per worker.

All parallel work uses this pool. If a multi-threaded BLAS alternates with another pool, both wait for the cores, which
is 8 to 25 times slower. NumPy, BLAS and `nogil` kernels release the GIL, so the workers run in parallel.

    n_jobs   None or -1: all cores (in scikit-learn None means one thread)
             m > 0: at most m threads
             -m: all cores except m - 1

A *section* (`ThreadLimit`) limits the number of threads while it is open. A method with a parameter n_jobs runs inside
`at_most(n_jobs)`: all work that its thread starts, including BLAS, uses at most that many threads. Sections nest, and
the lowest limit holds. Other threads have limits of their own for the pool. The limit of BLAS applies to the whole
process.

**Interrupts.** Ctrl-C can interrupt the waiting thread at any instruction, and its caller may use the pool again:
`kway fit` ends with the best model so far, and a notebook runs its next cell. So no Python lock is held while waiting.
An interrupt inside Condition.__enter__ would leave it locked, and ThreadPoolExecutor uses many of them. Work and
results are passed through queues that are written in C. The condition `_section_ended` is used only while a process is
about to fork, when a new section waits for that fork or the fork waits for sections.

**Forks.** A forked child creates its own pool. A fork waits until no other thread is inside a section, and no new
section begins until then. Otherwise OpenBLAS, which joins its threads before a fork, would never return if another
thread gave them work at that moment, and the child would inherit locks that are never released. A fork waits at most
FORK_WAIT seconds. A fit takes longer, so the fork then goes ahead. This is safe except during the few instructions in
which the number of BLAS threads is changed. Matrix products that callers run in their own threads
are not protected: use "spawn" or "forkserver" with them.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from queue import SimpleQueue
from threading import get_ident
from typing import Any, NamedTuple, TypeVar
from weakref import ref

from kway.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")

FORK_WAIT = 1.0  # seconds that a fork waits for other threads; predictions take milliseconds (tests/attack)

_lock = threading.RLock()  # guards the variables below
_section_ended = threading.Condition(_lock)
_local = threading.local()  # .inside: whether the thread is a worker, which runs nested work itself
_pool: SimpleQueue[_Task] | None = None  # tasks for the workers
_controller: Any = None  # of threadpoolctl, which sets the number of BLAS threads
_knows_scipy = False  # whether the controller was created after scipy.linalg was loaded
_sections: dict[int, _Section] = {}  # the open sections
_keys = itertools.count()
_before: dict[str, tuple[Any, int]] = {}  # BLAS libraries by path, with their number of threads before the limit
_blas_limit: int | None = None  # the current limit of BLAS threads; 0 while it is being changed
_forks: set[int] = set()  # threads that are about to fork


@cache
def cores() -> int:
    """Return the cores that this process may use, which may be fewer than the machine has; read once per process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers(n_jobs: int | None = None) -> int:
    """Return the number of threads that `n_jobs` means, within the limits of `at_most`; 1 inside a worker."""
    if getattr(_local, "inside", False):
        return 1
    limit = min([cores(), *[section.threads for section in _own_sections()]])
    if n_jobs is None:
        return limit
    if n_jobs == 0:
        raise InputError("n_jobs must not be 0; use None for all cores or a positive number")
    return min(limit, max(1, cores() + 1 + n_jobs) if n_jobs < 0 else n_jobs)


class _Outcome(NamedTuple):
    """The result or the error of one item, and its place in the list."""

    place: int
    result: Any
    error: BaseException | None = None


class _Task(NamedTuple):
    """One item for a worker, and the queue for its outcome."""

    f: Callable[[Any], Any]
    item: Any
    place: int
    ended: SimpleQueue[_Outcome]


def _shared_pool() -> SimpleQueue[_Task]:
    """Return the queue of the workers; start one worker per core at the first call."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = SimpleQueue()
            for i in range(cores()):
                threading.Thread(target=_work, args=(_pool,), name=f"kway_{i}", daemon=True).start()
        return _pool


def _work(tasks: SimpleQueue[_Task]) -> None:
    _local.inside = True
    while True:
        f, item, place, ended = tasks.get()
        try:
            ended.put(_Outcome(place, f(item)))
        except BaseException as error:
            ended.put(_Outcome(place, None, error))
        del f, item, ended  # a waiting worker keeps no reference to its last work


class ThreadLimit:
    """A section: limits BLAS to `blas` threads, and the work of this thread to `threads`, while it is open.

    While sections are open, BLAS uses the lowest of their limits. When the last one closes, its original number of
    threads is restored. Sections of several threads may overlap, so restoring the number at each exit would leave BLAS
    at one thread. An interrupt between two instructions does no harm: a section that was deleted without its exit is
    removed by a callback that needs no Python instructions, and the original number is kept until it is restored. Enter
    each object only once.
    """

    def __init__(self, blas: int, threads: int) -> None:
        self._blas, self._threads = blas, threads

    def __enter__(self) -> None:
        own = get_ident()
        with _lock:
            if not (_own_sections() or getattr(_local, "inside", False)):
                # no section of this thread is open, or that section would wait for itself
                _section_ended.wait_for(lambda: not _forks)
            self._key = next(_keys)
            # the callback receives the dead reference, which becomes the unused default of dict.pop
            life = ref(self, partial(_sections.pop, self._key))
            _sections[self._key] = _Section(own, life, self._blas, self._threads)
            if not _blas_limit or self._blas < _blas_limit or not _knows_scipy:
                _set_blas_threads()

    def __exit__(self, *_: object) -> None:
        with _lock:
            _sections.pop(self._key, None)
            if min([section.blas for section in list(_sections.values())], default=None) != _blas_limit:
                _set_blas_threads()
            if _forks:
                _section_ended.notify_all()


class _Section(NamedTuple):
    """An open section: its thread, a weak reference that removes it if its ThreadLimit is deleted, and its limits."""

    thread: int
    life: ref[ThreadLimit]
    blas: int
    threads: int


def single_blas() -> ThreadLimit:
    """Return a section that limits BLAS to one thread."""
    return ThreadLimit(1, sys.maxsize)


def at_most(n_jobs: int | None) -> AbstractContextManager[None]:
    """Return a section that limits this thread and BLAS to the number of threads that n_jobs means.

    >>> with at_most(1):
    ...     workers(None)
    1
    """
    if n_jobs is None:
        return nullcontext()
    limit = workers(n_jobs)
    return ThreadLimit(limit, limit) if limit < cores() else nullcontext()


def _set_blas_threads() -> None:
    """Set the threads of BLAS to the lowest limit of the open sections, or to the original number if none is open."""
    global _blas_limit, _controller, _knows_scipy
    limit = min([section.blas for section in list(_sections.values())], default=None)
    if limit == _blas_limit and (_knows_scipy or "scipy.linalg" not in sys.modules):
        return
    from threadpoolctl import OpenBLASController, ThreadpoolController

    forget = getattr(OpenBLASController, "clear_controlling_thread", None)
    if forget is not None:  # with threadpoolctl 3.8, only the first thread that set the number could change it
        forget(force=True)
    if limit is not None:
        if _controller is None or (not _knows_scipy and "scipy.linalg" in sys.modules):
            # created again after scipy has loaded its own BLAS, which would otherwise compete with the pool
            _controller, _knows_scipy = ThreadpoolController(), "scipy.linalg" in sys.modules
        for library in _controller.lib_controllers:
            _before.setdefault(library.filepath, (library, library.num_threads))
    _blas_limit = 0
    for library, threads in _before.values():
        library.set_num_threads(threads if limit is None else min(limit, threads))
    if limit is None:
        _before.clear()
    _blas_limit = limit


def _own_sections() -> list[_Section]:
    """Return the open sections of this thread."""
    own = get_ident()
    return [section for section in list(_sections.values()) if section.thread == own] if _sections else []


def pmap(f: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return [f(item) for item in items], computed by the pool.

    An error of an item is raised after the work of all threads has ended. An error ends the work of its thread if one
    thread computes several items. If items of several threads fail, the error of the first thread is raised. Inside a
    worker, the items run in that worker, so that no thread waits for another.

    >>> pmap(lambda v: v * v, range(4))
    [0, 1, 4, 9]
    """
    todo = list(items)
    m = min(workers(), len(todo))
    with ThreadLimit(1, sys.maxsize):
        if m <= 1:
            return [f(item) for item in todo]
        if m >= cores():
            return _results(f, todo)
        tasks = [todo[i::m] for i in range(m)]  # fewer threads than cores: one task per thread
        parts = _results(lambda task: [f(item) for item in task], tasks)
        return [parts[i % m][i // m] for i in range(len(todo))]


def _results(f: Callable[[Item], Result], items: list[Item]) -> list[Result]:
    """Return f of every item, computed by the pool; raise the error of the first item that has one."""
    tasks, ended = _pool or _shared_pool(), SimpleQueue[_Outcome]()
    for place, item in enumerate(items):
        tasks.put(_Task(f, item, place, ended))
    outcomes = sorted((ended.get() for _ in items), key=lambda outcome: outcome.place)
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if errors:
        raise errors[0]
    return [outcome.result for outcome in outcomes]


def spans(n: int, size: int) -> list[slice]:
    """Return slices of at most `size` that cover range(n) in order.

    >>> spans(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(a, min(n, a + size)) for a in range(0, n, max(1, size))]


def even_spans(n: int, max_size: int) -> list[slice]:
    """Return slices of at most `max_size` that cover range(n) and give all threads about the same number of items.

    >>> with at_most(1):
    ...     even_spans(10, 4)
    [slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)]
    """
    threads = workers()
    parts = -(-n // (max(1, max_size) * threads)) * threads
    return spans(n, -(-n // parts)) if n else []


def spans_of(share: slice, size: int) -> list[slice]:
    """Return slices of at most `size` that cover a slice, such as one of `shares`.

    >>> spans_of(slice(10, 15), 2)
    [slice(10, 12, None), slice(12, 14, None), slice(14, 15, None)]
    """
    return [slice(a, min(share.stop, a + size)) for a in range(share.start, share.stop, max(1, size))]


def shares(n: int, least: int = 1) -> list[slice]:
    """Split range(n) into at most one slice per thread, each of at least `least` items; one slice if n is smaller."""
    parts = max(1, min(workers(), n // max(1, least)))
    edges = [n * i // parts for i in range(parts + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def _wait_before_fork() -> None:
    """Wait until the sections of other threads have ended, and block new ones while the process is copied."""
    _lock.acquire()
    _forks.add(get_ident())
    if not getattr(_local, "inside", False):  # a worker would wait for the section that it belongs to
        _section_ended.wait_for(lambda: len(_sections) <= len(_own_sections()), FORK_WAIT)


def _resume_after_fork() -> None:
    _forks.discard(get_ident())
    _section_ended.notify_all()
    _lock.release()


def _reset_after_fork() -> None:
    """Reset the state in a forked child, which has no workers and only the sections of the forking thread."""
    global _pool, _lock, _section_ended
    _lock = threading.RLock()
    _pool, _section_ended = None, threading.Condition(_lock)
    _forks.clear()
    cores.cache_clear()
    for key, section in list(_sections.items()):
        if section.thread != get_ident():
            _sections.pop(key, None)
    _local.inside = False
    _set_blas_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_before_fork, after_in_parent=_resume_after_fork, after_in_child=_reset_after_fork)

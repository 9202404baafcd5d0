"""The one worker pool: `pmap(f, items)` runs f over items on all cores, BLAS held to one thread inside.

Alternating a multi-threaded BLAS with other threads makes both wait for the cores (8 to 25 times slower), so
whoever works in parallel does it here: numpy, BLAS and `nogil` kernels all let go of the GIL, one thread a core.

    n_jobs   None or -1: every core (scikit-learn's None means one; kway's default uses the machine)
             m > 0: at most m threads;  -m: all cores but m - 1

Who was given an n_jobs does all its work inside `at_most(n_jobs)`: whatever is asked for there, by this thread, gets no
more threads than that, and BLAS none either. Limits nest, the lowest holds; callers in other threads have their own.

Ctrl-C may come at any instruction of the thread that waits, and its caller may go on to use the pool (`kway fit` ends
with the best so far, a notebook runs its next cell), so no lock that is written in Python is held on the way: an
interrupt inside Condition.__enter__ leaves it locked for good, and a ThreadPoolExecutor is full of them. Work goes in
and results come out by queues written in C.

A forked child makes a pool of its own. A fork waits until no other thread is inside pmap or a section and holds new
ones back meanwhile, FORK_WAIT at most: OpenBLAS joins its threads before a fork and never returns where another thread
gives them work then, and a child copied inside it finds a lock that nobody will open. What runs longer, such as a fit,
is forked over; it uses one thread of BLAS, so that only those few instructions remain. Products of the caller's own, in
his own threads, are out of reach: use "spawn" or "forkserver" there.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from queue import SimpleQueue
from threading import get_ident
from typing import Any, NamedTuple, TypeVar
from weakref import ref

Item = TypeVar("Item")
Result = TypeVar("Result")

FORK_WAIT = 1.0  # seconds; answers take milliseconds

_gate = threading.RLock()  # guards what follows
_calm = threading.Condition(_gate)  # told whenever a section ends
_local = threading.local()  # .inside: it is a worker, so nested work runs where it stands
_pool: SimpleQueue[_Task] | None = None  # what the workers take from
_controller: Any = None
_knows_scipy = False  # whether the controller was made after scipy.linalg had loaded
_open: dict[int, _Section] = {}  # the callers who hold BLAS
_keys = itertools.count()
_before: dict[str, tuple[Any, int]] = {}  # BLAS's libraries by path, and the threads that each had, while it is held
_held: int | None = None  # how many threads BLAS is held at; 0 while that is being changed
_forks = 0  # how many threads are about to fork


def cores() -> int:
    """Cores this process may use, which a container can hold below the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers(n_jobs: int | None = None) -> int:
    """Number of threads that `n_jobs` stands for, no more than `at_most` leaves; 1 inside a worker."""
    if getattr(_local, "inside", False):
        return 1
    most = min([cores(), *[section.threads for section in _own_sections()]])
    if n_jobs is None:
        return most
    if n_jobs == 0:
        raise ValueError("n_jobs == 0 has no meaning; use None for all cores or a positive number")
    return min(most, max(1, cores() + 1 + n_jobs) if n_jobs < 0 else n_jobs)


class _Ended(NamedTuple):
    """What came of one item: its place in the list, and its result or its error."""

    place: int
    result: Any
    error: BaseException | None = None


class _Task(NamedTuple):
    """One item for a worker, and where what comes of it goes."""

    f: Callable[[Any], Any]
    item: Any
    place: int
    ended: SimpleQueue[_Ended]


def _shared_pool() -> SimpleQueue[_Task]:
    """What the workers take from, a thread a core; they end with the process."""
    global _pool
    with _gate:
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
            ended.put(_Ended(place, f(item)))
        except BaseException as error:
            ended.put(_Ended(place, None, error))
        del f, item, ended  # while it waits a worker holds nothing of its last work


class Hold:
    """BLAS on no more than `blas` threads while this is open, and the work of this thread on no more than `threads`.

    Counted: overlapping limits would otherwise restore in the wrong order and leave BLAS at one thread for good.
    An interrupt between two instructions here loses nothing either: a section that died is no longer open, by a
    callback without an instruction of Python, and what BLAS had is known until it has it again.
    """

    def __init__(self, blas: int, threads: int) -> None:
        self._blas, self._threads = blas, threads

    def __enter__(self) -> None:
        with _gate:
            if not (getattr(_local, "inside", False) or _own_sections()):  # no other thread waits for this one
                _calm.wait_for(lambda: not _forks)
            self._key = next(_keys)
            life = ref(self, partial(_open.pop, self._key))
            _open[self._key] = _Section(get_ident(), life, self._blas, self._threads)
            _hold_blas()

    def __exit__(self, *_: object) -> None:
        with _gate:
            _open.pop(self._key, None)
            _hold_blas()
            if _forks:
                _calm.notify_all()


class _Section(NamedTuple):
    """A caller who holds BLAS: whose it is, what ends it should it die, and its limits."""

    thread: int
    life: ref[Hold]
    blas: int
    threads: int


def single_blas() -> Hold:
    """BLAS on one thread while anybody is inside."""
    return Hold(1, sys.maxsize)


def at_most(n_jobs: int | None) -> AbstractContextManager[None]:
    """The work of this thread on no more threads than n_jobs stands for, and BLAS on no more either.

    >>> with at_most(1):
    ...     workers(None)
    1
    """
    if n_jobs is None:
        return nullcontext()
    most = workers(n_jobs)
    return Hold(most, most) if most < cores() else nullcontext()


def _hold_blas() -> None:
    """BLAS on as many threads as the lowest of the open sections says; without one on those that it had."""
    global _held, _controller, _knows_scipy
    most = min([section.blas for section in list(_open.values())], default=None)
    if most == _held and (_knows_scipy or "scipy.linalg" not in sys.modules):
        return
    from threadpoolctl import OpenBLASController, ThreadpoolController

    forget = getattr(OpenBLASController, "clear_controlling_thread", None)
    if forget is not None:  # threadpoolctl 3.8 obeys no thread but the first that ever set the number of threads
        forget(force=True)
    if most is not None:
        if _controller is None or (not _knows_scipy and "scipy.linalg" in sys.modules):
            # made again once scipy's own BLAS has loaded, or it would be missed and compete with the pool for the cores
            _controller, _knows_scipy = ThreadpoolController(), "scipy.linalg" in sys.modules
        for library in _controller.lib_controllers:
            _before.setdefault(library.filepath, (library, library.num_threads))
    _held = 0
    for library, threads in _before.values():
        library.set_num_threads(threads if most is None else min(most, threads))
    if most is None:
        _before.clear()
    _held = most


def _own_sections() -> list[_Section]:
    """The open sections of this thread."""
    own = get_ident()
    return [section for section in list(_open.values()) if section.thread == own] if _open else []


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
            return _results(f, todo)
        lanes = [todo[i::m] for i in range(m)]  # fewer threads than cores: one task a thread
        parts = _results(lambda lane: [f(v) for v in lane], lanes)
        return [parts[i % m][i // m] for i in range(len(todo))]


def _results(f: Callable[[Item], Result], items: list[Item]) -> list[Result]:
    """f of every item, by the pool; the error of the first in the list that has one."""
    tasks, ended = _shared_pool(), SimpleQueue[_Ended]()
    for place, item in enumerate(items):
        tasks.put(_Task(f, item, place, ended))
    found = sorted((ended.get() for _ in items), key=lambda one: one.place)
    errors = [one.error for one in found if one.error is not None]
    if errors:
        raise errors[0]
    return [one.result for one in found]


def spans(n: int, size: int) -> list[slice]:
    """Slices of at most `size` that cover range(n) in order.

    >>> spans(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(a, min(n, a + size)) for a in range(0, n, max(1, size))]


def even_spans(n: int, most: int, n_jobs: int | None = None) -> list[slice]:
    """Slices of at most `most` that cover range(n), as many as keep all threads busy to the end.

    >>> even_spans(10, 4, n_jobs=1)
    [slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)]
    """
    threads = workers(n_jobs)
    parts = -(-n // (max(1, most) * threads)) * threads
    return spans(n, -(-n // parts)) if n else []


def spans_of(share: slice, size: int) -> list[slice]:
    """Slices of `size` that cover a slice, such as one of `shares`.

    >>> spans_of(slice(10, 15), 2)
    [slice(10, 12, None), slice(12, 14, None), slice(14, 15, None)]
    """
    return [slice(a, min(share.stop, a + size)) for a in range(share.start, share.stop, max(1, size))]


def shares(n: int, n_jobs: int | None = None, least: int = 1) -> list[slice]:
    """range(n) cut into one slice a thread, none under `least` long."""
    parts = max(1, min(workers(n_jobs), n // max(1, least)))
    edges = [n * i // parts for i in range(parts + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def _hold_before_fork() -> None:
    """Wait for the others' sections to end, and let none begin while the process is copied."""
    global _forks
    _gate.acquire()
    _forks += 1
    if not getattr(_local, "inside", False):  # a worker would wait for the section that it belongs to
        _calm.wait_for(lambda: len(_open) <= len(_own_sections()), FORK_WAIT)


def _go_on_after_fork() -> None:
    global _forks
    _forks -= 1
    _calm.notify_all()
    _gate.release()


def _forget_after_fork() -> None:
    """A forked child has the pool object but none of its threads, and of all sections only those of its own thread."""
    global _pool, _gate, _calm, _forks
    _gate = threading.RLock()
    _pool, _calm, _forks = None, threading.Condition(_gate), 0
    for key, section in list(_open.items()):
        if section.thread != get_ident():
            _open.pop(key, None)
    _local.inside = False
    _hold_blas()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_before_fork, after_in_parent=_go_on_after_fork, after_in_child=_forget_after_fork)

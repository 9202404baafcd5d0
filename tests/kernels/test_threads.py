"""The worker pool: order, errors, nesting, BLAS held to one thread and let go again, forked children."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from kway import threads
from kway.errors import InputError
from kway.threads import at_most, cores, pmap, shares, single_blas, spans, workers


@pytest.fixture(autouse=True)
def _several_threads_of_blas():
    """`make test` gives its processes one each, and from one to one nothing could be seen."""
    with threadpool_limits(3, user_api="blas"):
        yield


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(), max_size=20), st.sampled_from([None, 1, 2, 3, -1, -2]))
def test_results_come_in_order(items, n_jobs):
    with at_most(n_jobs):
        assert pmap(lambda v: v + 1, items) == [v + 1 for v in items]


def test_an_error_comes_out_and_the_others_are_finished():
    done = []

    def work(i):
        if i == 1:
            raise KeyError("one")
        time.sleep(0.01)
        done.append(i)

    with pytest.raises(KeyError, match="one"):
        pmap(work, range(6))
    assert sorted(done) == [0, 2, 3, 4, 5] or cores() == 1


def test_work_inside_work_runs_where_it_stands():
    def outer(_):
        me = threading.get_ident()
        return all(ident == me for ident in pmap(lambda _: threading.get_ident(), range(4))) and workers() == 1

    assert cores() == 1 or all(pmap(outer, range(2 * cores())))


def test_no_more_threads_than_asked_for():
    if cores() < 2:
        pytest.skip("one core")
    seen = set()
    with at_most(1):
        pmap(lambda _: (seen.add(threading.get_ident()), time.sleep(0.002)), range(20))
    assert len(seen) == 1


def test_fewer_threads_than_cores_keep_the_order(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 4)  # so that 3 is fewer, on any machine
    with at_most(3):
        assert pmap(lambda v: v + 1, range(11)) == list(range(1, 12))
    with at_most(2), pytest.raises(KeyError):
        pmap({0: 0}.__getitem__, range(5))


def test_blas_has_one_thread_inside_and_its_own_number_after():
    before = blas_threads()
    assert set(before) == {3}
    inside = pmap(lambda _: blas_threads(), range(2))
    assert all(n == 1 for numbers in inside for n in numbers)
    assert blas_threads() == before


def test_overlapping_guards_restore_blas():
    before = blas_threads()
    first, second = single_blas(), single_blas()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # out of order, as two threads may leave
    assert set(blas_threads()) == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == before


def elsewhere(f):
    """f() in a thread of its own."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(f).result(60)


def test_any_thread_may_hold_blas_and_let_it_go():
    """threadpoolctl 3.8 obeys none but the thread that first set a number, as the main thread has here."""
    before = blas_threads()
    with single_blas():
        pass
    assert set(elsewhere(lambda: pmap(lambda _: blas_threads(), [0])[0])) == {1}
    assert blas_threads() == before
    section = single_blas()
    section.__enter__()

    def leave_last():
        with single_blas():
            section.__exit__(None, None, None)
            return blas_threads()

    assert set(elsewhere(leave_last)) == {1}
    assert blas_threads() == before
    assert not threads._sections


def test_an_error_inside_the_guard_restores_blas():
    before = blas_threads()
    with pytest.raises(ZeroDivisionError):
        pmap(lambda v: 1 // v, [0])
    assert blas_threads() == before


@pytest.mark.parametrize(
    ("n_jobs", "expected"), [(None, cores()), (-1, cores()), (1, 1), (10_000, cores()), (-10_000, 1)]
)
def test_workers(n_jobs, expected):
    assert workers(n_jobs) == expected


def test_zero_workers_are_refused():
    with pytest.raises(InputError, match="n_jobs must not be 0"):
        workers(0)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 50), st.integers(1, 60))
def test_spans_cover_in_order(n, size):
    pieces = spans(n, size)
    assert [i for piece in pieces for i in range(n)[piece]] == list(range(n))
    assert all(0 < piece.stop - piece.start <= size for piece in pieces)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 50), st.integers(1, 4), st.integers(1, 20))
def test_shares_cover_in_order(n, n_jobs, least):
    with at_most(n_jobs):
        pieces = shares(n, least)
    assert [i for piece in pieces for i in range(n)[piece]] == list(range(n))
    assert len(pieces) <= max(1, workers(n_jobs))
    assert len(pieces) == 1 or all(piece.stop - piece.start >= least for piece in pieces)


def _in_child(queue):
    queue.put(sum(pmap(lambda v: float(np.ones((8, 8)).sum()) * v, range(4))))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_a_pool_of_its_own():
    pmap(abs, range(8))  # the parent's pool exists
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with single_blas():  # and it is forked while BLAS is held
        child = context.Process(target=_in_child, args=(queue,))
        child.start()
    assert queue.get(timeout=60) == 64.0 * 6
    child.join(60)
    assert child.exitcode == 0
    assert threads._pool is not None or cores() == 1


def forked(work):
    """The exit status of a child that does `work`, and the seconds that the fork took."""
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        os._exit(0 if work() else 1)
    taken = time.monotonic() - start
    return os.waitpid(child, 0)[1], taken


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_waits_for_the_sections_of_others_and_holds_new_ones_back(monkeypatch):
    monkeypatch.setattr(threads, "FORK_WAIT", 60.0)
    inside, order = threading.Event(), []

    def section():
        with single_blas():
            inside.set()
            while not threads._forks:
                time.sleep(0.001)
            others[1].start()
            time.sleep(0.1)  # it stands before its section, where the machine is not too busy
            assert pmap(lambda _: 1, range(3)) == [1, 1, 1]  # work within work is not held back
            order.append("left")

    def late():
        with single_blas():
            order.append("late")

    others = [threading.Thread(target=section), threading.Thread(target=late)]
    others[0].start()
    inside.wait(60)
    status, _ = forked(lambda: order == ["left"] and pmap(abs, [-1, 2]) == [1, 2])
    assert status == 0
    for other in others:
        other.join(60)
    assert order == ["left", "late"]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_does_not_wait_for_ever_nor_for_itself(monkeypatch):
    monkeypatch.setattr(threads, "FORK_WAIT", 0.3)
    before, inside, over = blas_threads(), threading.Event(), threading.Event()

    def long():
        with single_blas():
            inside.set()
            over.wait(120)

    other = threading.Thread(target=long)
    other.start()
    inside.wait(60)
    status, taken = forked(lambda: blas_threads() == before)
    assert status == 0
    assert 0.3 <= taken < 60
    over.set()
    other.join()
    monkeypatch.setattr(threads, "FORK_WAIT", 60.0)
    with single_blas():
        status, taken = forked(lambda: set(blas_threads()) == {1} and pmap(abs, [-1]) == [1])  # its own section goes on
    assert status == 0
    assert taken < 60
    assert pmap(lambda _: forked(lambda: pmap(abs, [-3]) == [3])[0], [0, 1]) == [0, 0]  # and from inside workers
    assert blas_threads() == before


def test_work_inside_a_limit_has_no_more_threads(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 8)
    before = blas_threads()
    with at_most(2):
        assert [workers(n_jobs) for n_jobs in (None, -1, 5, 1)] == [2, 2, 2, 1]
        assert set(blas_threads()) == {2}
        with at_most(None), at_most(6):  # the lowest holds
            assert workers() == 2
            with at_most(1):
                assert workers() == 1
                assert set(blas_threads()) == {1}
        assert elsewhere(workers) == 8  # another caller
        with single_blas():
            assert workers() == 2
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {2}
        seen = set()
        pmap(lambda _: (seen.add(threading.get_ident()), time.sleep(0.002)), range(20))
        assert len(seen) <= 2
    assert workers() == 8
    with at_most(None):
        assert blas_threads() == before
    with pytest.raises(ZeroDivisionError), at_most(1):
        pmap(lambda v: 1 // v, [0])
    assert (workers(), blas_threads()) == (8, before)
    assert not threads._sections


def test_a_limit_that_an_interrupt_left_open_is_none():
    section = at_most(1) if cores() > 1 else single_blas()
    section.__enter__()
    del section  # as of a frame that died between two instructions
    assert workers() == cores()
    with single_blas():
        pass
    assert set(blas_threads()) == {3}


LATE = """
import sys, numpy
from threadpoolctl import threadpool_info
from kway import threads
of_blas = lambda: {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
threads.cores, before = lambda: 4, of_blas()
assert "scipy.linalg" not in sys.modules
with threads.at_most(1):
    import scipy.linalg
    with threads.single_blas():
        assert of_blas() == {1}, of_blas()
    assert of_blas() == {1}, of_blas()
assert of_blas() == before, of_blas()
"""


def test_a_blas_that_is_loaded_inside_a_limit_is_held_by_the_next_section():
    subprocess.run([sys.executable, "-c", LATE], check=True, timeout=120, env=os.environ | {"OMP_NUM_THREADS": "3"})

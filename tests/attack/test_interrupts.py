"""Ctrl-C at any instruction of work on the pool: what is asked next is answered, and BLAS has its threads back.

    child    says it is ready, works on the pool until the interrupt, asks it for something, and so on
    parent   waits for less than a millisecond, at random, sends SIGINT, and waits for the next round

A ThreadPoolExecutor was left locked, or raised RuntimeError, about once in 3,000 rounds: its locks are written in
Python, and an interrupt between taking one and knowing so leaves it taken. Sections that were counted by a number left
BLAS at one thread for good about once in 500.
"""

import os
import random
import select
import signal
import subprocess
import sys
import time

import pytest

CHILD = """
import os
import numpy
from threadpoolctl import threadpool_info
from kway import threads
from kway.threads import pmap

before = threadpool_info()
for _ in range({rounds}):
    assert pmap(abs, range(-8, 0)) == list(range(8, 0, -1))
    try:
        os.write(1, b".")
        while True:
            pmap(abs, range(8))
    except KeyboardInterrupt:
        pass
assert pmap(abs, range(-8, 0)) == list(range(8, 0, -1))
assert not threads._sections and threadpool_info() == before
os.write(1, b"!")
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs POSIX signals")
@pytest.mark.parametrize("rounds", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_the_pool_outlives_interrupts(rounds):
    rng = random.Random(0)
    command, two = [sys.executable, "-c", CHILD.format(rounds=rounds)], os.environ | {"OMP_NUM_THREADS": "2"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=two) as child:
        try:
            for seen in range(rounds):
                assert _said(child, seen) == b".", seen
                end = time.perf_counter() + rng.random() * 5e-4
                while time.perf_counter() < end:
                    pass
                child.send_signal(signal.SIGINT)
            assert _said(child, rounds) == b"!"
            assert child.wait(20) == 0
        finally:
            child.kill()


def _said(child: subprocess.Popen, seen: int) -> bytes:
    """The next byte of the child, which may take its time to start but never to go on."""
    assert child.stdout is not None
    ready, _, _ = select.select([child.stdout], [], [], 20 if seen else 60)
    assert ready, f"stuck after {seen} interrupts"
    return os.read(child.stdout.fileno(), 1)

"""What holds for every test, of tests/ and in docstrings.

- Modules of rows/gpu import torch and Triton, which `make test-gpu` installs: without them nothing is collected.
- Processes that test side by side share the cores: with all of them for the BLAS and OpenMP of each, threads of one
  wait in a busy loop for cores that the other has (tests/linear/test_newton.py: 39 s of CPU, 20 s with one thread).
- The objects that the collection of the tests makes live until the end, so the garbage collector leaves them out. It
  would otherwise take a tenth of the run.
"""

import gc
import os
from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("torch") and find_spec("triton") else ["src/kway/rows/gpu/*"]

beside = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))
if beside:  # numpy is not imported yet, and looks at this when it is
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // beside)))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Stop the garbage collector while the tests are collected, and leave out the objects that then exist."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure():
    """Give the objects back to the garbage collector, because some extensions complain if objects are never freed."""
    gc.unfreeze()

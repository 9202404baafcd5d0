"""Peak memory while searching: above the index and the answer, at most 256 MB, measured in a process of its own."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import numpy as np
from kway.search import Flat, Landmarks

def rss(field):
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith(field))

rng = np.random.default_rng(0)
basis = rng.normal(size=(20, 784)).astype(np.float32)
def make(n):
    return rng.normal(size=(n, 20)).astype(np.float32) @ basis + rng.normal(size=(n, 784)).astype(np.float32) / 2
rows, queries = make(60_000), make(10_000)
index = {"flat": Flat, "landmarks": Landmarks}[sys.argv[1]]().build(rows, sys.argv[2])
index.nearest(queries[:300], 5)  # kernels are loaded
before = rss("VmRSS")
open("/proc/self/clear_refs", "w").write("5")  # the peak counts from here
found = index.nearest(queries, 5)
print(rss("VmHWM") - before - (found.ids.nbytes + found.distances.nbytes) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.parametrize("index", ["flat", "landmarks"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "dot", "manhattan"])
def test_peak_while_searching(index, metric):
    done = subprocess.run([sys.executable, "-c", SCRIPT, index, metric], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 256

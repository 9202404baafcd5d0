"""Without Ray everything runs here, and nobody pays for it; entering a cluster says how to get it."""

import subprocess
import sys

CODE = """
import sys
{first}
import numpy as np
import kway
from kway.errors import ClusterError
from kway.search import Flat, Sharded
rows = np.random.default_rng(0).normal(size=(200, 8))
index = Sharded(Flat(), 3, replicas=2).build(rows)
assert index.why_ == "3 shards of flat in this process", index.why_
assert (index.nearest(rows, 1).ids[:, 0] == np.arange(200)).all()
kway.SoftmaxClassifier().fit(rows, rows[:, 0] > 0).predict(rows)
print(sys.modules.get("ray"))
{last}
"""
REFUSED = """
try:
    with kway.cluster():
        pass
except ClusterError as error:
    print(error)
"""


def said(first="", last=""):
    code = CODE.format(first=first, last=last)
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_outside_a_cluster_ray_is_not_loaded():
    assert said() == "None"


def test_without_ray_a_cluster_is_a_sentence():
    found = said("sys.modules['ray'] = None", REFUSED)  # as if it were not installed
    assert found.endswith("a cluster needs Ray, which is not installed; pip install 'ray[client]'")

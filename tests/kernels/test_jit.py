"""How kernels are compiled and until when they are kept."""

import os
import subprocess
import sys
import types

import pytest

from kway.kernels.jit import PACKAGE, _source, source_stamp

CALLED = "BASE = {base}\n\n\ndef base():\n    return BASE\n"
CALLS = "from kway.kernels.{called} import base\n"


@pytest.fixture
def two_modules(tmp_path, monkeypatch):
    """A kernel module that draws on another: what writes the other one's text."""
    names = {"called": "drawn_on_by_a_test", "caller": "drawing_in_a_test"}
    for part, name in names.items():
        module = types.ModuleType(f"{PACKAGE}.{name}")
        module.__file__ = str(tmp_path / f"{part}.py")
        monkeypatch.setitem(sys.modules, module.__name__, module)
    (tmp_path / "caller.py").write_text(CALLS.format(called=names["called"]))

    def stamped(base):
        (tmp_path / "called.py").write_text(CALLED.format(base=base))
        _source.cache_clear()
        source_stamp.cache_clear()
        return source_stamp(f"{PACKAGE}.{names['caller']}")

    yield stamped
    _source.cache_clear()
    source_stamp.cache_clear()


def test_a_stamp_knows_what_a_module_draws_on(two_modules):
    first = two_modules(1)
    assert two_modules(2) != first
    assert two_modules(1) == first


def test_the_stamp_of_a_module_without_a_file():
    assert source_stamp("not loaded") == source_stamp("nor this")


STALE = """
import sys
from kway.kernels import jit
jit.source_stamp = lambda module, stamp=sys.argv[1]: stamp
from kway.kernels.topk import merge
import numpy as np
merge(np.ones((1, 2)), np.zeros((1, 2), np.int64), np.ones((1, 3)), np.ones((1, 3), np.int64))
stats = merge.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def test_a_kernel_kept_from_other_sources_is_not_used(tmp_path):
    """numba itself looks at the kernel's own file only, and would run what an upgrade has changed elsewhere."""
    said = [
        subprocess.run(
            [sys.executable, "-c", STALE, stamp],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        ).stdout.split()
        for stamp in ("before", "before", "after")
    ]
    assert said == [["0", "1"], ["1", "0"], ["0", "1"]]

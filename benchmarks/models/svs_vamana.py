"""SVS, scalable vector search: the Vamana graph over float32 and float16 rows.

Its compressed rows (LVQ, LeanVec) end the process on hardware that is not Intel's, so they are tried on Intel's only.
"""

import os
import tempfile
from pathlib import Path

import numpy as np

from . import need

NAME = "SVS"
WINDOWS = (5, 7, 10, 14, 20, 28, 40, 56, 80, 120, 200)  # of the search, from quick to thorough


def kinds():
    """How the rows are kept."""
    info = Path("/proc/cpuinfo")
    intel = info.exists() and "GenuineIntel" in info.read_text()
    return ("float32", "float16", *(("LVQ 4x8", "LeanVec") if intel else ()))


def build(X, kind, degree=32, window=100, threads=2):
    """Build the index; `search_window_size` is set by the caller."""
    svs = need("svs")
    if kind == "float16":
        return _vamana(svs, X.astype(np.float16), degree, window, threads)
    if kind == "float32":
        return _vamana(svs, X, degree, window, threads)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.fvecs")
        svs.write_vecs(X, path)
        rows = svs.VectorDataLoader(path, svs.DataType.float32, dims=X.shape[1])
        lean = kind == "LeanVec"
        made = svs.LeanVecLoader(rows, X.shape[1] // 4) if lean else svs.LVQLoader(rows, primary=4, residual=8)
        return _vamana(svs, made, degree, window, threads)


def _vamana(svs, rows, degree, window, threads):
    wishes = svs.VamanaBuildParameters(graph_max_degree=degree, window_size=window)
    index = svs.Vamana.build(wishes, rows, svs.DistanceType.L2, num_threads=threads)
    index.num_threads = threads
    return index

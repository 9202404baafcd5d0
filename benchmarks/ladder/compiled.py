"""The three loops of a matrix product, compiled: by numba, and by a C compiler if there is one."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
from numpy.typing import NDArray

SOURCE = Path(__file__).with_name("loops.c")


@functools.cache
def numba_product() -> Callable[[NDArray, NDArray], NDArray]:
    """Run the loops compiled by numba, with the same order of sums as in C."""

    @numba.njit
    def product(a, b):
        out = np.empty((len(a), len(b)))
        for i in range(len(a)):
            for j in range(len(b)):
                total = 0.0
                for k in range(a.shape[1]):
                    total += a[i, k] * b[j, k]
                out[i, j] = total
        return out

    return product


@functools.cache
def c_product() -> Callable[[NDArray, NDArray], NDArray] | None:
    """Return the loops of loops.c; None without a C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:  # the loaded library stays when its file goes
        library = Path(folder) / "loops.so"
        command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", str(SOURCE), "-o", str(library)]
        subprocess.run(command, check=True, capture_output=True)
        function = ctypes.CDLL(str(library)).product
    matrix = np.ctypeslib.ndpointer(np.float64, 2, flags="C_CONTIGUOUS")
    function.argtypes = [matrix, matrix, matrix, *[ctypes.c_long] * 3]
    function.restype = None

    def product(a: NDArray, b: NDArray) -> NDArray:
        out = np.empty((len(a), len(b)))
        function(a, b, out, len(a), len(b), a.shape[1])
        return out

    return product

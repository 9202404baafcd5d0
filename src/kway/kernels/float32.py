"""Limits of float32 products, shared by searches on the CPU and on a GPU."""

import numpy as np

_RANGE = np.finfo(np.float32)
# smallest and largest norm whose cube float32 can represent, so that squares and sums of squares keep all digits
FLOAT32_SAFE = float(_RANGE.tiny) ** (1 / 3), float(_RANGE.max) ** (1 / 3)
PRODUCT_UNDERFLOW = float(_RANGE.tiny) / float(_RANGE.eps)  # more than a sum of float32 products loses by underflow
SUM_ROUNDING = 1e-12  # bounds the relative rounding n 2^-53 of a float64 sum of n < 9,000 terms of the same sign

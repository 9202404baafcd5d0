"""The spread of columns against numpy's, dense and sparse, in blocks and of values beyond float64's squares."""

import numpy as np
import pytest
import scipy.sparse as sp

from kway import column_spread as module
from kway.column_spread import spread


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_against_numpy(dtype, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 50)  # many blocks
    X = (np.random.default_rng(0).random((97, 6)) * 200).astype(dtype)
    np.testing.assert_allclose(spread(X), X.astype(np.float64).std(axis=0), rtol=1e-5)
    rows = sp.csr_matrix(np.where(X > 100, X, 0).astype(np.float64))
    np.testing.assert_allclose(spread(rows), rows.toarray().std(axis=0), rtol=1e-9)


def test_constants_and_huge_values():
    assert spread(np.ones((5, 2))).tolist() == [0, 0]
    assert np.isinf(spread(np.array([[1e300], [-1e300]]))[0])

"""The spread of columns against numpy's, dense and sparse, in blocks and of values beyond float64's squares."""

import numpy as np
import pytest
import scipy.sparse as sp

from kway.rows import matrices
from kway.rows.matrices import column_spread


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_against_numpy(dtype, monkeypatch):
    monkeypatch.setattr(matrices, "BLOCK_BYTES", 400)  # many blocks
    X = (np.random.default_rng(0).random((97, 6)) * 200).astype(dtype)
    np.testing.assert_allclose(column_spread(X), X.astype(np.float64).std(axis=0), rtol=1e-5)
    rows = sp.csr_matrix(np.where(X > 100, X, 0).astype(np.float64))
    np.testing.assert_allclose(column_spread(rows), rows.toarray().std(axis=0), rtol=1e-9)


def test_constants_and_huge_values():
    assert column_spread(np.ones((5, 2))).tolist() == [0, 0]
    assert np.isinf(column_spread(np.array([[1e300], [-1e300]]))[0])

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import cosine_distances, haversine_distances

from kway.errors import InputError
from kway.search.metrics import Gaussian, Haversine, Laplacian
from kway.search.pairwise import pairwise

LEFT = np.array([[56, 32, 10, 18], [90, 23, 128, 133], [24, 26, 178, 200], [2, 0, 255, 220]], dtype=np.uint8)
RIGHT = np.array([[10, 20, 24, 17], [8, 10, 89, 100], [12, 16, 178, 170], [4, 32, 233, 112]], dtype=np.uint8)


def test_bytes_do_not_wrap():
    assert np.sum(np.abs(LEFT - RIGHT)) != 456  # what uint8 subtraction makes of it
    assert pairwise(LEFT.ravel(), RIGHT.ravel(), "manhattan").item() == 456


@pytest.mark.parametrize("name", ["euclidean", "manhattan", "hamming", "cosine", "dot", "haversine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_against_other_libraries(name, dtype):
    rng = np.random.default_rng(0)
    d = 2 if name == "haversine" else 7
    a, b = rng.normal(size=(33, d)).round(1).astype(dtype), rng.normal(size=(300, d)).round(1).astype(dtype)
    x, y = a.astype(float), b.astype(float)
    expected = {
        "haversine": lambda: haversine_distances(x, y),
        "cosine": lambda: cosine_distances(x, y),
        "dot": lambda: -x @ y.T,
        "manhattan": lambda: cdist(x, y, "cityblock"),
    }.get(name, lambda: cdist(x, y, name))()
    np.testing.assert_allclose(pairwise(a, b, name), expected, atol=1e-12)


def test_kernels_give_similarities():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 3)), rng.normal(size=(6, 3))
    np.testing.assert_allclose(pairwise(a, b, Gaussian(2.0)), np.exp(-(cdist(a, b) ** 2) / 4))
    np.testing.assert_allclose(pairwise(a, b, Laplacian(2.0)), np.exp(-cdist(a, b, "cityblock") / 2))


def test_degrees_give_kilometres():
    new_york, london = [40.7128, -74.0060], [51.5074, -0.1278]
    assert pairwise(new_york, london, Haversine(degrees=True)).item() == pytest.approx(5570.2, abs=0.5)


@settings(deadline=None, max_examples=30)
@given(offset=st.sampled_from([0.0, 1e3, 1e8]), scale=st.sampled_from([1e-3, 1.0, 1e4]), seed=st.integers(0, 99))
def test_near_rows_keep_their_digits(offset, scale, seed):
    rng = np.random.default_rng(seed)
    a = offset + scale * rng.normal(size=(20, 6))
    b = np.concatenate([a[:10], a[:10] + scale * 1e-5])
    for name, other in (("euclidean", "euclidean"), ("manhattan", "cityblock")):
        found = pairwise(a, b, name)
        assert (np.diag(found[:10, :10]) == 0).all()
        np.testing.assert_allclose(found, cdist(a, b, other), rtol=1e-9)
    assert (np.diag(pairwise(a, a, "cosine")) == 0).all()


def test_one_argument_sparse_and_mistakes():
    eye = np.eye(3)
    np.testing.assert_array_equal(pairwise(eye), pairwise(sp.csr_matrix(eye), eye))
    with pytest.raises(InputError, match="A has 3 columns and B has 2"):
        pairwise(eye, np.eye(2))

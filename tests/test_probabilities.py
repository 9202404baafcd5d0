"""Shares and their logarithms are scipy's, in the float type of the scores, however far apart these are."""

import numpy as np
import pytest
import scipy.special

from kway.probabilities import log_softmax, log_sum_exp, softmax


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 80.0, 1e6])
def test_as_in_scipy(dtype, scale):
    z = (scale * np.random.default_rng(0).standard_normal((200, 7))).astype(dtype)
    z[::5, 2] = -np.inf
    close = 20 * np.finfo(dtype).eps
    for own, theirs in ((softmax, scipy.special.softmax), (log_softmax, scipy.special.log_softmax)):
        assert own(z).dtype == dtype
        np.testing.assert_allclose(own(z), theirs(z, axis=1), rtol=close, atol=close)
    np.testing.assert_allclose(log_sum_exp(z), scipy.special.logsumexp(z, axis=1), rtol=close, atol=close)
    assert softmax(z[:0]).shape == (0, 7)

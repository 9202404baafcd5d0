"""Oracle and inputs for the certified search: float64 brute force, and data chosen to break bounds."""

from __future__ import annotations

import numpy as np
import pytest

from kway.search.distances import EUCLIDEAN

N, Q = 1003, 37  # rows and queries of a case; neither fills whole blocks or tiles


def brute(rows, queries, distance):
    """values (q, n) float64: Euclidean or Manhattan distances of the stored values, added in sixteen lanes.

    The order of additions is the one that `kway.kernels.distances` uses, so that equal means equal.
    """
    rows, d, out, plain = rows.astype(np.float64), rows.shape[1], [], []
    with np.errstate(over="ignore"):
        for query in queries.astype(np.float64):
            gaps = np.abs(rows - query)
            terms = gaps * gaps if distance == EUCLIDEAN else gaps
            lanes = np.zeros((len(rows), 16))
            for z in range(0, d - d % 16, 16):
                lanes += terms[:, z : z + 16]
            while lanes.shape[1] > 1:
                lanes = lanes[:, : lanes.shape[1] // 2] + lanes[:, lanes.shape[1] // 2 :]
            total = lanes[:, 0]
            for z in range(d - d % 16, d):
                total = total + terms[:, z]
            out.append(total)
            plain.append(terms.sum(axis=1))
    np.testing.assert_allclose(out, plain, rtol=1e-12)
    return np.sqrt(out) if distance == EUCLIDEAN else np.array(out)


class Truth:
    """Brute force's values (q, n) and order of the rows, kept for other searches of the last problems."""

    def __init__(self):
        self.problems = {}

    def __call__(self, rows, queries, distance):
        """Return the values and the ids, the nearest first."""
        key = rows.shape, rows.dtype, rows.tobytes(), queries.tobytes(), distance
        if key not in self.problems:
            if len(self.problems) == 4:  # both distances in both types
                self.problems.clear()
            values = brute(rows, queries, distance)
            self.problems[key] = values, np.argsort(values, axis=1, kind="stable")
        return self.problems[key]


truth = Truth()


def verify(index, rows, queries, distance, ks):
    """The answer is brute force's for every k: the same ids, ties to the lower one, the same distances."""
    values, order = truth(rows, queries, distance)
    for k in ks:
        got = index.nearest(queries, k)
        assert got.ids.dtype == np.int64
        assert got.distances.dtype == np.float64
        np.testing.assert_array_equal(got.ids, order[:, :k])
        np.testing.assert_array_equal(got.distances, np.take_along_axis(values, got.ids, 1))


@pytest.fixture(scope="session")
def check():
    """verify, as a fixture: test modules do not import each other."""
    return verify


def _equally_far(noise):
    """Every row at distance 1 from the queries but for the last digits, and bounds that are all but equal to it."""
    shell = np.cumsum(noise(200), axis=1)
    shell[N:] = 1e-9 * noise(200)[N:]
    shell[:N] /= np.linalg.norm(shell[:N], axis=1, keepdims=True)
    shell[1:N:2] = -shell[: N - 1 : 2]
    simplex = np.abs(np.cumsum(noise(160), axis=1))
    simplex[:N] /= simplex[:N].sum(axis=1, keepdims=True)
    simplex[N:] = 0
    return {"shell": shell, "simplex": simplex}


def _cases(rng):
    """name -> points (N + Q, d) float64; the last Q are the queries."""
    m = N + Q

    def noise(d):
        return rng.standard_normal((m, d))

    few_far, some_far, constant = noise(40), noise(33), noise(24)
    few_far[7] *= 1e4
    few_far[N - 3] *= 1e6
    some_far[::50] *= 1000
    constant[:, 3] = 7
    sparse = np.zeros((m, 60))
    sparse[np.arange(m), rng.integers(0, 60, m)] = rng.standard_normal(m)
    zeros = np.zeros((m, 17))
    zeros[:50] = rng.standard_normal((50, 17))
    dominant = noise(50) * 0.01
    dominant[:, 11] = rng.standard_normal(m) * 1e4
    wild = noise(30)
    wild[N + 1] *= 1e30
    wild[N + 2] = 0
    wild[N + 5] += 1e6
    moved = noise(32)
    moved[N:] += 50  # queries none of which lies where the rows are
    return {
        "noise": noise(20),
        "isotropic": noise(130),
        "offset": noise(50) + 1e3,
        "far offset": noise(50) + 1e6,
        "tiny spread": 1 + 1e-6 * noise(40),
        "scaled": noise(70) * np.logspace(3, -3, 70),
        "dominant": dominant,
        "low rank": rng.standard_normal((m, 5)) @ rng.standard_normal((5, 90)),
        "grid": rng.integers(0, 3, (m, 30)).astype(float),
        "bytes": rng.integers(0, 256, (m, 64)).astype(float) * (rng.random((m, 64)) < 0.2),
        "duplicates": rng.standard_normal((40, 40))[rng.integers(0, 40, m)],
        "constant column": constant,
        "some outliers": some_far,
        "few outliers": few_far,
        "cauchy": rng.standard_cauchy((m, 64)),
        "mostly zero": zeros,
        "one entry a row": sparse,
        "two far clusters": noise(25) + 1e5 * rng.integers(0, 2, m)[:, None],
        "huge": noise(20) * 1e30,
        "minute": noise(20) * 1e-30,
        "nine columns": noise(9),
        "sixteen columns": noise(16),
        "wild queries": wild,
        "queries elsewhere": moved,
        **_equally_far(noise),
        "smooth": np.cumsum(noise(200), axis=1),
    }


CASES = _cases(np.random.default_rng(11))


@pytest.fixture(scope="session", params=list(CASES))
def case(request):
    """(rows, queries) in float64; a test casts to the dtype it wants."""
    points = CASES[request.param]
    order = np.random.default_rng(3).permutation(N)
    return points[:N][order], points[N:]

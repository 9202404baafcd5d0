"""Drawn indexes against brute force: sizes about the edges of blocks, ties, units, layouts; every exact way.

    python exact_search.py 3000 --first 0         one line a bad case, and counts at the end

What an answer owes (search/index.py): the k nearest by the distance given, then by the lower position; each distance
that of its id; equal rows in the order of their positions; whole numbers, whose sums are exact, to the last digit. The
same answer from one thread and two, from an index that was written and read, query by query, and with KWAY_PORTABLE=1.
"""

from __future__ import annotations

import argparse
import collections
import os

import numpy as np

from kway.errors import KwayError
from kway.search import Flat, Gaussian, Int8, KDTree, Landmarks, Laplacian, Neighbors, Sharded, restore

ROWS = (1, 2, 3, 16, 17, 63, 64, 65, 255, 257, 1023, 1024, 1025, 1087, 2049, 4097)
COLUMNS = (1, 2, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 257, 385, 783, 785)
QUERIES = (1, 2, 6, 8, 9, 33)
METRICS = ("euclidean", "manhattan", "cosine", "dot", "hamming", Gaussian(2.0), Laplacian(2.0))
MOST_NUMBERS = 400_000


def _clusters(rng, n, d):
    return 10.0 ** rng.integers(0, 7) * rng.normal(size=(4, d))[rng.integers(0, 4, n)] + 1e-3 * rng.normal(size=(n, d))


def _thin(rng, n, d):
    """Near a plane of few dimensions, the last ones beside it."""
    away = rng.normal(size=d)
    x = rng.normal(size=(n, min(d, 3))) @ rng.normal(size=(min(d, 3), d)) + 1e-4 * rng.normal(size=(n, d))
    x[-min(n, 40) :] += 10 * away / np.linalg.norm(away)
    return x


DRAWN = {
    "normal": lambda rng, n, d: rng.normal(size=(n, d)),
    "whole": lambda rng, n, d: rng.integers(-3, 4, (n, d)).astype(float),
    "pixels": lambda rng, n, d: (rng.integers(0, 256, (n, d)) * (rng.random((n, d)) < 0.3)).astype(float),
    "far whole": lambda rng, n, d: rng.integers(-1, 2, (n, d)) + 4096.0,
    "clusters": _clusters,
    "thin": _thin,
    "far": lambda rng, n, d: 1e6 + rng.normal(size=(n, d)),
    "same": lambda rng, n, d: np.repeat(rng.normal(size=(1, d)), n, axis=0),
    "copies": lambda rng, n, d: rng.normal(size=(1 + n // 5, d))[rng.integers(0, 1 + n // 5, n)],
    "outlier": lambda rng, n, d: rng.normal(size=(n, d)) * np.where(np.arange(n) == n // 2, 1e9, 1)[:, None],
    "zeros": lambda rng, n, d: rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.1),
    "walk": lambda rng, n, d: np.cumsum(rng.normal(size=(n, d)), axis=1),
    "tails": lambda rng, n, d: rng.standard_cauchy((n, d)),
    "units": lambda rng, n, d: rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-6, 6, d),
    "small": lambda rng, n, d: rng.normal(size=(n, d)) * 1e-25,
    "large": lambda rng, n, d: rng.normal(size=(n, d)) * 1e25,
}
WHOLE = ("whole", "pixels", "far whole")


def _recipe(rng, metric, n):
    cells = int(min(n, rng.choice([1, 3, 20])))
    ways = [Flat(), Flat(), Sharded(Flat(), shards=3)]
    if metric != "hamming":
        ways += [Flat(store=Int8()), Landmarks(n_landmarks=cells, probes=cells)]
    if metric not in ("dot", "hamming"):
        ways.append(KDTree())
    return ways[rng.integers(len(ways))]


def _laid_out(rng, x):
    """The values as a caller may hold them, and as they are then."""
    plain = x.astype(rng.choice([np.float32, np.float64]))
    how = rng.integers(5)
    if how == 0:
        return np.asfortranarray(plain), plain
    if how == 1:
        wide = np.zeros((2 * len(x), 3 * x.shape[1]), plain.dtype)
        wide[::2, 1::3] = plain
        return wide[::2, 1::3], plain
    if how == 2 and (x == np.rint(x)).all() and np.abs(x).max() < 2**15:
        return x.astype(np.int16), x.astype(np.float32)
    return plain, plain


def brute(queries, rows, metric):
    """Distances (q, n) in float64."""
    q, x, name = queries.astype(np.float64), rows.astype(np.float64), getattr(metric, "name", metric)
    out = np.empty((len(q), len(x)))
    for i, one in enumerate(q):
        if name in ("euclidean", "gaussian"):
            unit = 2.0 ** np.frexp(np.abs(x - one).max(initial=0))[1]  # a power of two changes no digit
            out[i] = unit * np.sqrt(np.square((x - one) / unit).sum(axis=1))
        elif name in ("manhattan", "laplacian"):
            out[i] = np.abs(x - one).sum(axis=1)
        elif name == "hamming":
            out[i] = (x != one).mean(axis=1)
        elif name == "dot":
            out[i] = -(x @ one)
        else:
            u, v = one / (np.abs(one).max() or 1.0), x / np.where(x.any(axis=1), np.abs(x).max(axis=1), 1.0)[:, None]
            norms = np.sqrt(u @ u) * np.sqrt(np.square(v).sum(axis=1))
            out[i] = 1 - np.divide(v @ u, norms, out=np.zeros(len(x)), where=norms > 0)
    return out


def faults(found, queries, rows, metric, whole):
    """What is wrong with an answer of exact search."""
    ids, given = found
    n, kind, name = len(rows), given.dtype.type, getattr(metric, "name", metric)
    true = brute(queries, rows, metric)
    most = float(np.finfo(kind).max)
    rounded = np.clip(true, -most, most).astype(kind)
    best, own = np.sort(true, axis=1)[:, : ids.shape[1]], np.take_along_axis(true, ids, axis=1)
    digits = 4e-7 if kind == np.float32 else 1e-12
    room = digits * np.abs(best) + {"cosine": 2e-14}.get(name, 0.0) + float(np.finfo(kind).smallest_subnormal)
    if name == "dot":
        room = room + 1e-12 * (np.abs(queries.astype(float)) @ np.abs(rows.astype(float)).T).max(axis=1)[:, None]
    beyond = np.abs(best) >= most
    if ((np.abs(own - best) > room) & ~beyond).any():
        yield "not the nearest"
    if ((np.abs(given - own) > room) & ~beyond).any():
        yield "a distance that is not that of its id"
    if (np.diff(given, axis=1) < 0).any() or (np.diff(ids, axis=1)[np.diff(given, axis=1) == 0] <= 0).any():
        yield "not in order"
    if whole and name != "cosine":
        order = np.lexsort((np.broadcast_to(np.arange(n), rounded.shape), rounded), axis=1)[:, : ids.shape[1]]
        if (order != ids).any() or (np.take_along_axis(rounded, ids, axis=1) != given).any():
            yield "not to the last digit"
    kinds = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    before = np.array([np.count_nonzero(kinds[:j] == kinds[j]) for j in range(n)]) if kinds.max() + 1 < n else None
    if before is not None:
        for line in ids:
            listed = collections.Counter(kinds[line].tolist())
            if any(before[j] >= listed[kinds[j]] for j in line):
                yield "equal rows out of order"
                break


def attempt(seed):
    """One drawn index: "ok", "refused", or what is wrong with it."""
    rng = np.random.default_rng([seed, 8])
    n, d = (int(rng.choice(sizes)) for sizes in (ROWS, COLUMNS))
    n = max(1, min(n, MOST_NUMBERS // d))
    metric, kind, q = METRICS[rng.integers(len(METRICS))], str(rng.choice(list(DRAWN))), int(rng.choice(QUERIES))
    x = DRAWN[kind](rng, n + q, d)
    asked = x[n:].copy()
    asked[rng.random(q) < 0.3] = x[rng.integers(n)]
    (rows, plain), (queries, as_asked) = _laid_out(rng, x[:n]), _laid_out(rng, asked)
    recipe, k = _recipe(rng, metric, n), int(min(n, rng.choice([1, 2, 5, 20, 21, n])))
    said = f"seed {seed}: {recipe} {metric} {kind} {n} x {d} {plain.dtype}, {q} {as_asked.dtype} queries, k {k}: "
    try:
        index = recipe.build(rows, metric)
        found = index.nearest(queries, k)
    except KwayError:
        return "refused"
    bad = [
        *faults(found, as_asked, plain, metric, kind in WHOLE),
        *_others(recipe, index, rows, metric, queries, found),
    ]
    return said + "; ".join(bad) if bad else "ok"


def _others(recipe, index, rows, metric, queries, found):
    """Other ways to the same answer."""
    k = found.ids.shape[1]
    alone = [index.nearest(queries[i : i + 1], k) for i in range(min(3, len(queries)))]
    ways = {
        "one thread": index.nearest(queries, k, n_jobs=1),
        "two threads": index.nearest(queries, k, n_jobs=2),
        "one query": Neighbors(*(np.concatenate(part) for part in zip(*alone))),
        "read again": restore(*index.parts()).nearest(queries, k),
    }
    os.environ["KWAY_PORTABLE"] = "1"
    try:
        ways["portable"] = recipe.build(rows, metric).nearest(queries, k)
    finally:
        del os.environ["KWAY_PORTABLE"]
    for name, other in ways.items():
        m = len(other.ids)
        if not (np.array_equal(other.ids, found.ids[:m]) and np.array_equal(other.distances, found.distances[:m])):
            yield f"another answer: {name}"


def main():
    """Draw, and print what is bad."""
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    ends = collections.Counter()
    for seed in range(asked.first, asked.first + asked.count):
        end = attempt(seed)
        ends[end if end in ("ok", "refused") else "bad"] += 1
        if end not in ("ok", "refused"):
            print(end, flush=True)
    print(dict(ends))
    return int(ends["bad"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())

"""Fits on hostile input: any finite input gives answers that agree with each other, or a sentence.

A problem is drawn from its number: rows from 1 to 80, 1 to 40 columns, float32 or float64, sizes from 1e-300 to 1e300,
constant columns, duplicates, one value far out, offsets, columns of unlike sizes, zeros. Every model is fitted on it
and asked for the rows it learned from and for wild ones. An end is

    answered   predict = argmax of predict_proba = first of predict_topk, probabilities finite and summing to 1, scores
               finite; and where the model measures distances, the answers on X are those on 2^m X
    refused    a KwayError
    bad        everything else: NaN, a disagreement, an error of numpy's, numba's or Python's own

    python hostile_input.py 10000 --seed 0
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import kway
from kway.confidence import ConformalClassifier, OpenSetClassifier, TemperatureScaledClassifier
from kway.errors import KwayError
from kway.search import LSH, Flat, Int8, KDTree, Landmarks

Model = Callable[[], Any]


def _neighbors(k: int = 3, **settings: Any) -> Model:
    return lambda: kway.NeighborsClassifier(k, **settings)


ONE_CELL = Landmarks(n_landmarks=1, probes=1, store=Int8(rerank=False))
MEASURING: dict[str, Model] = {  # a factor changes no answer of these
    "flat": _neighbors(),
    "nearest row": _neighbors(1, index="flat", weights="distance"),
    "flat manhattan": _neighbors(metric="manhattan", index="flat"),
    "flat cosine": _neighbors(metric="cosine", index="flat", weights="distance"),
    "flat dot": _neighbors(metric="dot", index="flat"),
    "flat int8": _neighbors(index=Flat(store=Int8())),
    "tree": _neighbors(index=KDTree(leaf_size=2)),
    "tree cosine": _neighbors(metric="cosine", index=KDTree()),
    "tree manhattan": _neighbors(metric="manhattan", index=KDTree()),
}
OTHERS: dict[str, Model] = {
    "hamming": _neighbors(metric="hamming"),
    "gaussian": _neighbors(metric=kway.Gaussian(1.0), weights="similarity"),
    "landmarks": _neighbors(index=Landmarks()),
    "landmarks cosine": _neighbors(metric="cosine", index=Landmarks(n_landmarks=3, probes=1)),
    "landmarks dot": _neighbors(metric="dot", index=Landmarks(probes=1)),
    "one cell of codes": _neighbors(1, index=ONE_CELL),
    "flat codes": _neighbors(index=Flat(store=Int8(rerank=False))),
    "hashes": _neighbors(index=LSH()),
    "hashes dot": _neighbors(metric="dot", index=LSH(n_tables=2, probes=1)),
    "hashes manhattan": _neighbors(metric="manhattan", index=LSH()),
    "centroids": kway.CentroidClassifier,
    "centroids cosine": lambda: kway.CentroidClassifier("cosine"),
    "exemplars": lambda: kway.ExemplarClassifier(max_iter=20),
    "boosted trees": lambda: kway.TreesClassifier(n_trees=5),
    "forest": lambda: kway.TreesClassifier("extra", n_trees=5),
}
LINEAR: dict[str, Model] = {
    "softmax": lambda: kway.SoftmaxClassifier(max_iter=50),
    "logistic": lambda: kway.LogisticClassifier(max_iter=50),
    "svm": lambda: kway.SVMClassifier(max_iter=50),
    "rounded hinge": lambda: kway.LinearClassifier(
        loss="rounded-hinge", multiclass="one-vs-all", solver="dual", max_iter=50
    ),
    "least squares": kway.LeastSquaresClassifier,
    "naive Bayes": kway.NaiveBayesClassifier,
    "perceptron": lambda: kway.PerceptronClassifier(max_iter=20),
    "softmax l1": lambda: kway.SoftmaxClassifier(penalty="l1", max_iter=30),
    "softmax sgd": lambda: kway.SoftmaxClassifier(solver="sgd", max_iter=5),
}
AROUND: dict[str, Model] = {
    "temperature": lambda: TemperatureScaledClassifier(kway.CentroidClassifier(), cv=2),
    "temperature of svm": lambda: TemperatureScaledClassifier(kway.SVMClassifier(max_iter=20)),
    "conformal": lambda: ConformalClassifier(_neighbors()()),
    "open set": lambda: OpenSetClassifier(_neighbors()()),
}
MODELS: dict[str, Model] = MEASURING | OTHERS | LINEAR | AROUND


@dataclass(frozen=True)
class Problem:
    """Rows X (n, d), labels (n,), and queries (q, d) of the same type and wilder."""

    seed: int
    kind: str
    X: np.ndarray
    y: np.ndarray
    Q: np.ndarray

    def __str__(self) -> str:
        size = np.abs(self.X).max()
        return f"problem {self.seed}: {self.kind}, {self.X.dtype} {self.X.shape}, up to {size:.3g}"


KINDS: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "clouds": lambda X, rng: X,
    "constant columns": lambda X, rng: np.where(rng.random(X.shape[1]) < 0.5, X[0], X),
    "all the same": lambda X, rng: np.broadcast_to(X[0], X.shape),
    "duplicates": lambda X, rng: X[rng.integers(0, max(1, len(X) // 3), len(X))],
    "offset": lambda X, rng: X + 1e6,
    "unlike columns": lambda X, rng: X * 10.0 ** rng.integers(-9, 10, X.shape[1]),
    "zeros": lambda X, rng: X * (rng.random(X.shape) < 0.2),
    "one far out": lambda X, rng: _one_far_out(X, rng),
    "whole numbers": lambda X, rng: np.rint(X),
}


def _one_far_out(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    X = X.copy()
    X[rng.integers(len(X)), rng.integers(X.shape[1])] *= 10.0 ** rng.integers(3, 250)
    return X


def draw(seed: int) -> Problem:
    """The problem of a number."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.choice([2, 3, 5, 8, 20, 40, 80])), int(rng.choice([1, 2, 3, 5, 12, 40]))
    dtype = rng.choice([np.float32, np.float64])
    y = rng.permutation(np.arange(n) % int(rng.integers(2, min(n, 5) + 1)))
    kind = str(rng.choice(list(KINDS)))
    X = KINDS[kind](3 * rng.normal(size=(5, d))[y] + rng.normal(size=(n, d)), rng)
    top = 36 if dtype == np.float32 else 300
    power = 0 if rng.random() < 0.3 else rng.integers(-top, top + 1)
    with np.errstate(all="ignore"):
        X = _finite(X * 10.0**power, dtype)
        wild = [X[:4] * 10.0 ** rng.integers(-50, 51), np.zeros((1, d)), 10.0 ** rng.uniform(-top, top, (2, d))]
        Q = _finite(np.concatenate([X, *wild]), rng.choice([np.float32, np.float64]))
    return Problem(seed, kind, X, y, Q)


def _finite(X: np.ndarray, dtype: Any) -> np.ndarray:
    most = float(np.finfo(dtype).max)
    return np.ascontiguousarray(np.clip(X, -most, most).astype(dtype))


def check(model: Any, Q: np.ndarray) -> np.ndarray:
    """The labels of queries, after every answer has been held against every other."""
    labels = model.predict(Q)
    assert set(labels.tolist()) <= set(model.classes_.tolist()), "a label that is no class"
    best = model.predict_topk(Q, 2)
    assert np.isfinite(best.scores).all(), "scores of predict_topk are not finite"
    assert (np.asarray(best.ids)[:, 0] == labels).all(), "predict is not the first of predict_topk"
    if hasattr(model, "decision_function"):
        assert np.isfinite(model.decision_function(Q)).all(), "decisions are not finite"
    if hasattr(model, "predict_proba"):
        p = model.predict_proba(Q)
        assert np.isfinite(p).all(), "probabilities are not finite"
        assert np.allclose(p.sum(axis=1), 1, atol=1e-4), "probabilities do not sum to 1"
        assert ((p >= 0) & (p <= 1 + 1e-6)).all(), "probabilities outside 0 to 1"
        assert (model.classes_[p.argmax(axis=1)] == labels).all(), "predict is not the argmax of predict_proba"
    return np.asarray(labels)


def same_in_other_units(make: Model, problem: Problem, labels: np.ndarray) -> None:
    """The answers to X on X are those to 2^m X on 2^m X, wherever both are exact."""
    X, info = problem.X, np.finfo(problem.X.dtype)
    held = np.abs(X[X != 0])
    if not len(held) or held.max() * X.shape[1] > info.max / 4:  # distances beyond the type are all its largest: ties
        return
    low, high = int(np.log2(held.min())), int(np.log2(held.max()))
    room = (info.minexp + info.nmant + 2 - low, info.maxexp - 2 - high)  # powers that lose no digit
    if room[0] > room[1]:
        return
    power = int(np.random.default_rng(problem.seed).integers(room[0], room[1] + 1))
    moved = np.ldexp(X, power)
    again = make().fit(moved, problem.y).predict(moved)
    agree = float(np.mean(again == labels))
    assert agree == 1, f"answers change where all values are multiplied by 2^{power}: {agree:.3f} are the same"


def attack(problem: Problem, name: str) -> str:
    """How one model fares on one problem: "answered", "refused", or what is wrong."""
    make = MODELS[name]
    try:
        model = make().fit(problem.X, problem.y)
        labels = check(model, problem.X)
        try:
            check(model, problem.Q)
        except KwayError:
            return "refused"
        if name == "flat dot":  # products that leave float32 are given in float64, where fewer of them tie
            problem = replace(problem, X=problem.X.astype(np.float64))
            labels = make().fit(problem.X, problem.y).predict(problem.X)
        if name in MEASURING:
            same_in_other_units(make, problem, labels)
    except KwayError:
        return "refused"
    except Exception as error:  # the point of the exercise
        return f"{type(error).__name__}: {str(error)[:200]}"
    return "answered"


@dataclass
class Counts:
    """Ends so far, by model; and the bad ones."""

    ends: dict[str, Counter[str]] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)

    @property
    def total(self) -> Counter[str]:
        """Over all models."""
        return sum(self.ends.values(), Counter())

    def add(self, name: str, problem: Problem, end: str) -> None:
        """One more end."""
        known = end if end in ("answered", "refused") else "bad"
        self.ends.setdefault(name, Counter())[known] += 1
        if known == "bad":
            self.bad.append(f"{name}, {problem}: {end}")

    def __str__(self) -> str:
        total = self.total
        said = ", ".join(f"{total[end]:,} {end}" for end in ("answered", "refused", "bad"))
        return f"{sum(total.values()):,} fits: {said}"


def fits(n: int, seed: int) -> Iterator[tuple[Problem, str]]:
    """n fits: each problem is met by three models, so that all meet all kinds in time."""
    names = list(MODELS)
    for i in range(n):
        number = seed * 10**9 + i // 3
        order = np.random.default_rng(number).permutation(len(names))
        yield draw(number), names[order[i % 3]]


def run(n: int, seed: int = 0, seconds: float | None = None, say: Callable[[str], Any] | None = None) -> Counts:
    """n fits, or as many as the seconds allow."""
    counts, start = Counts(), time.monotonic()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for i, (problem, name) in enumerate(fits(n, seed), 1):
            counts.add(name, problem, attack(problem, name))
            if say is not None and i % 1000 == 0:
                say(str(counts))
            if seconds is not None and time.monotonic() - start > seconds:
                break
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="hostile_input")
    parser.add_argument("n", type=int, help="fits")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="stop after this long")
    given = parser.parse_args()
    found = run(given.n, given.seed, given.seconds, lambda said: print(said, flush=True))
    print(found)
    for name, ends in sorted(found.ends.items()):
        print(f"  {name:20}", dict(ends))
    for bad in found.bad:
        print(bad)
    sys.exit(bool(found.bad))

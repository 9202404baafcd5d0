"""Problems drawn from a seed: shapes, units, faults of the rows, and how they are to be learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Problem:
    """Rows, labels and how they are to be learned."""

    seed: int
    X: Any  # (n, d)
    y: np.ndarray  # (n,)
    weight: np.ndarray | None
    options: dict[str, Any]  # of LinearClassifier
    traits: tuple[str, ...] = ()

    @property
    def joint(self) -> bool:
        """Whether all classes are in one problem."""
        return self.options["multiclass"] == "joint" and self.y.max() > 1

    @property
    def kind(self) -> tuple[str, str, str]:
        """What is minimised and how."""
        form = "" if self.options["loss"] == "softmax" else " joint" if self.joint else " ova"
        return self.options["loss"] + form, self.options["penalty"], self.options["solver"]


SHAPES = {  # rows, features, classes: ranges that are drawn from on a logarithmic scale
    "tiny": ((5, 40), (1, 10), (2, 5)),
    "tall": ((200, 5000), (1, 60), (2, 6)),
    "square": ((30, 300), (20, 200), (2, 6)),
    "wide": ((10, 100), (200, 20_000), (2, 5)),
    "classes": ((60, 1500), (1, 12), (20, 200)),
    "spread": ((60, 3000), (2, 30), (2, 20)),
}
SOLVERS = {
    "softmax": {"smooth": ["lbfgs", "proximal", "gradient"], "l1": ["proximal"]},
    "squared": {"smooth": ["least-squares", "lbfgs", "proximal", "gradient"], "l1": ["proximal"]},
    "hinge": {"smooth": ["lbfgs", "proximal"], "l1": ["proximal"]},
}


def draw(seed: int, stochastic: bool = False, least: bool = False) -> Problem:
    """A problem of any kind; `stochastic`: for solver="sgd"; `least`: a small one."""
    rng = np.random.default_rng(seed)
    shape = str(rng.choice(list(SHAPES)))
    loss = str(rng.choice(["softmax", "hinge", "squared"], p=[0.45, 0.35, 0.2]))
    joint = bool(rng.random() < 0.6)
    penalty = str(rng.choice(["l2", "l1", "elasticnet", "none"], p=[0.5, 0.2, 0.2, 0.1]))
    n, d, K = (_between(rng, *range_) for range_ in SHAPES[shape])
    if least:
        n, d, K = min(n, 300), min(d, 40 if penalty in ("l1", "elasticnet") else 3000), min(K, 12)
    n, d, K = _affordable(n, d, K, loss, joint, penalty, 120 if least else 500)
    X, traits = _rows(rng, n, d)
    y = _labels(rng, X, K, traits)
    K = int(y.max()) + 1
    X = _units(rng, X, traits)
    single = bool(rng.random() < 0.4)
    X = X.astype(np.float32 if single else np.float64)
    if rng.random() < 0.25:
        X = sp.csr_matrix(X)
        traits.append("csr")
    weight = rng.lognormal(size=n) * (rng.random(n) < 0.9) if rng.random() < 0.25 else None
    if weight is not None and (np.bincount(y, weight) > 0).sum() == K:
        traits.append("weights")
    else:
        weight = None
    alpha = float(10 ** rng.uniform(-8, 1)) if penalty != "none" else 0.0
    if loss == "hinge" and penalty == "none":
        penalty, alpha = "l2", 1e-8  # without a penalty it is the hard margin, another problem
    options = {
        "loss": loss,
        "penalty": penalty,
        "alpha": alpha,
        "multiclass": "joint" if joint else "one-vs-all",
        "solver": _solver(rng, loss, penalty, joint and K > 2, stochastic),
        "fit_intercept": bool(rng.random() < 0.85),
        "tol": 1e-3 if single or rng.random() < 0.7 else 1e-6,
        "random_state": 0,
    }
    return Problem(seed, X, y, weight, options, (shape, "float32" if single else "float64", *traits))


def _between(rng: np.random.Generator, low: int, high: int) -> int:
    return int(np.exp(rng.uniform(np.log(low), np.log(high + 1))))


def _affordable(n: int, d: int, K: int, loss: str, joint: bool, penalty: str, most: int) -> tuple[int, int, int]:
    """A shape whose whole Hessian the oracle can factor."""
    kinks = loss == "hinge" or penalty in ("l1", "elasticnet")
    parameters = most if kinks else 2 * most
    if penalty in ("l1", "elasticnet"):
        d = min(d, 400)
    each = d if penalty in ("l1", "elasticnet") else min(n, d)
    if joint and K > 2:
        while K * (each + 1) > parameters and K > 3:
            K -= 1
        if K * (each + 1) > parameters:
            n, d = (n, parameters // K) if each == d else (parameters // K, d)
    return max(n, K, 5), max(d, 1), max(2, min(K, n))


def _rows(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, list[str]]:
    """Standard rows with the faults that real ones have."""
    traits = []
    X = rng.normal(size=(n, d))
    if rng.random() < 0.3:
        rank = max(1, d // 4)
        X = X[:, :rank] @ rng.normal(size=(rank, d)) / np.sqrt(rank) + 0.05 * rng.normal(size=(n, d))
        traits.append("correlated")
    if d > 1 and rng.random() < 0.15:
        X[:, rng.integers(d)] = X[:, 0]
        X[:, -1] = 1.0
        traits.append("repeats")
    if rng.random() < 0.15:
        X = X[rng.integers(0, max(2, n // 2), n)]
        traits.append("equal rows")
    if rng.random() < 0.15:
        X *= rng.random((n, d)) < 0.2
        traits.append("zeros")
    return X, traits


def _labels(rng: np.random.Generator, X: np.ndarray, K: int, traits: list[str]) -> np.ndarray:
    """Classes of a linear teacher, with noise of any size; each class has a row."""
    noise = float(rng.choice([0.0, 0.3, 1.0, 10.0]))
    scores = X @ rng.normal(size=(X.shape[1], K)) / np.sqrt(X.shape[1]) + noise * rng.normal(size=(len(X), K))
    y = scores.argmax(axis=1)
    y[rng.permutation(len(X))[:K]] = np.arange(K)
    traits.append(f"noise {noise:g}")
    return y


def _units(rng: np.random.Generator, X: np.ndarray, traits: list[str]) -> np.ndarray:
    """Columns in units of their own, and away from zero."""
    units = str(rng.choice(["equal", "lognormal", "any", "large", "small"], p=[0.5, 0.2, 0.1, 0.1, 0.1]))
    d = X.shape[1]
    if rng.random() < 0.2:
        X = X + rng.choice([1.0, 100.0]) * rng.normal(size=d)
        traits.append("offset")
    exponent = {"equal": 0.0, "lognormal": rng.normal(size=d), "any": rng.uniform(-12, 12, d)}
    power = exponent.get(units, rng.uniform(3, 12) if units == "large" else rng.uniform(-12, -3))
    if units != "equal":
        traits.append(f"units {units}")
    return X * 10.0**power


def _solver(rng: np.random.Generator, loss: str, penalty: str, joint: bool, stochastic: bool) -> str:
    if stochastic:
        return "sgd"
    if rng.random() < 0.7:
        return "auto"
    able = SOLVERS[loss]["l1" if penalty in ("l1", "elasticnet") else "smooth"]
    if loss == "hinge" and not joint and penalty == "l2":
        able = [*able, "dual"]
    return str(rng.choice(able))

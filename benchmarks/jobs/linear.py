"""T4: linear classifiers at the same objective: a peer runs with growing iteration limits until it is as low."""

from __future__ import annotations

import functools
import time

import numpy as np
import scipy.special

import kway

from .. import datasets
from ..models import NotInstalled
from ..models import sklearn_linear as peers
from ..race import Row, absent, race, row, settled

STEPS = (10, 20, 40, 80, 160, 320, 640, 1280)
CLOSE = 1.001  # objectives within this factor count as equal


def softmax_objective(model, X, y, alpha, penalty="l2"):
    """Mean cross-entropy plus penalty of any model with coef_ and intercept_, in float64."""
    W, b = np.asarray(model.coef_, np.float64), np.asarray(model.intercept_, np.float64)
    codes = np.searchsorted(model.classes_, y)
    total = 0.0
    for a in range(0, len(X), 10_000):
        Z = X[a : a + 10_000].astype(np.float64) @ W.T + b
        total += float((scipy.special.logsumexp(Z, axis=1) - Z[np.arange(len(Z)), codes[a : a + 10_000]]).sum())
    return total / len(X) + alpha * (np.abs(W).sum() if penalty == "l1" else (W * W).sum() / 2)


def hinge_objective(model, X, y, alpha):
    """One-vs-all hinge without a bias: sum over classes of mean hinge plus alpha / 2 ||w||^2."""
    W = np.asarray(model.coef_, np.float64)
    margins = (X.astype(np.float64) @ W.T) * (2.0 * (y[:, None] == model.classes_) - 1)
    return float(np.maximum(0, 1 - margins).sum(1).mean() + alpha / 2 * (W * W).sum())


def accuracy(model, data):
    """Share of the test rows that any model with coef_ and intercept_ gets right."""
    return float((model.classes_[(data.Q @ model.coef_.T + model.intercept_).argmax(axis=1)] == data.yq).mean())


def timed(run):
    start = time.perf_counter()
    model = run()
    return time.perf_counter() - start, model


def against(target, job, data, name, ours, theirs, objective, least, rounds):
    """Find the first iteration limit at which the peer is as low as kway, then race the two, interleaved."""
    ours()  # compiles
    value = objective(ours())

    enough = 0.5 if datasets.limited() else 100  # seconds after which the peer gets no more iterations

    def as_low():
        """Iterations, objective and seconds of the first run of the peer that is as low as kway."""
        for steps in STEPS:
            spent, model = timed(functools.partial(theirs, steps))
            reached = float(objective(model))
            if reached <= value * CLOSE or spent > enough:
                break
        return steps, reached, spent

    try:
        steps, reached, spent = settled("iterations", as_low)
    except NotInstalled as error:
        return absent(target, job, data.name, name, error, least)
    timings = race({"kway": ours, name: lambda: theirs(steps)}, rounds if spent < 15 else 2)
    quality = f"objective {value:.5f} against {reached:.5f} ({steps} iterations)"
    return row(target, job, data.name, name, timings, least, quality, bool(reached <= value * CLOSE))


def softmax_row(target, data, alpha, name, theirs, least, rounds):
    """Softmax L2 against one peer."""
    return against(
        target,
        f"softmax, alpha {alpha:g}",
        data,
        name,
        lambda: kway.SoftmaxClassifier(alpha=alpha).fit(data.X, data.y),
        lambda n: theirs(data.X, data.y, alpha, n),
        lambda m: softmax_objective(m, data.X, data.y, alpha),
        least,
        rounds,
    )


def softmax_rows(target, data, alpha, floors, rounds):
    """Softmax L2 against both builds of scikit-learn."""
    both = ((peers.NAME, peers.softmax), (peers.INTEL, peers.softmax_intel))
    return [softmax_row(target, data, alpha, *peer, least, rounds) for peer, least in zip(both, floors, strict=True)]


def sgd_row(target, data, alpha):
    """For information: SGDClassifier minimises another loss, so what stands beside the time is the test accuracy."""
    contestants = {
        "kway": lambda: kway.SoftmaxClassifier(alpha=alpha).fit(data.X, data.y),
        peers.SGD: lambda: peers.logistic_sgd(data.X, data.y, alpha),
    }
    timings = race(contestants, 1)
    ours, theirs = (accuracy(timings[name].answer, data) for name in contestants)
    quality = f"test accuracy {ours:.4f} against {theirs:.4f}"
    return row(
        target,
        f"linear fit by accuracy, alpha {alpha:g}",
        data.name,
        peers.SGD,
        timings,
        None,
        quality,
        bool(ours >= theirs),
    )


def t4(rounds: int, quick: bool) -> list[Row]:
    """Softmax on MNIST."""
    data = datasets.images("mnist")
    return [*softmax_rows("T4", data, 1e-4, (20, 8), rounds), sgd_row("T4", data, 1e-4)]


def t4b(rounds: int, quick: bool) -> list[Row]:
    """Softmax on embeddings and letters.

    newton-cholesky stands beside letter only: on MNIST its Hessian of 7,850 x 7,850 in float64 is 4 TFLOP an iteration.
    """
    letter = datasets.letter()
    rows = softmax_rows("T4b", datasets.embeddings("banking77"), 1e-4, (8, 4), rounds)
    rows += softmax_rows("T4b", datasets.embeddings("clinc150"), 1e-4, (5, 2.5), rounds)
    rows += softmax_rows("T4b", letter, 1e-4, (8, 2), rounds)
    return [*rows, softmax_row("T4b", letter, 1e-4, peers.NEWTON, peers.softmax_newton, None, rounds)]


def t4c(rounds: int, quick: bool) -> list[Row]:
    """L1 on 20,000 rows of MNIST."""
    data, alpha = datasets.some(datasets.images("mnist"), 3000 if quick else 20_000), 1e-3
    return [
        against(
            "T4c",
            f"softmax L1, alpha {alpha:g}",
            data,
            peers.SAGA,
            lambda: kway.SoftmaxClassifier("l1", alpha).fit(data.X, data.y),
            lambda n: peers.softmax_l1(data.X, data.y, alpha, n),
            lambda m: softmax_objective(m, data.X, data.y, alpha, "l1"),
            40,
            rounds,
        )
    ]


def t4d(rounds: int, quick: bool) -> list[Row]:
    """One-vs-all SVM."""
    rows = []
    letter = datasets.letter()
    pairs = (datasets.images("mnist"), 1e-4), (letter, 1e-4), (letter, 1e-5)
    for data, alpha in pairs[:2] if quick else pairs:
        data = datasets.some(data, 10_000) if quick else data
        rows.append(
            against(
                "T4d",
                f"one-vs-all hinge, alpha {alpha:g}",
                data,
                peers.SVC,
                lambda data=data, alpha=alpha: kway.SVMClassifier(
                    alpha=alpha, multiclass="one-vs-all", fit_intercept=False
                ).fit(data.X, data.y),
                lambda n, data=data, alpha=alpha: peers.svm(data.X, data.y, alpha, n),
                lambda m, data=data, alpha=alpha: hinge_objective(m, data.X, data.y, alpha),
                3,
                rounds,
            )
        )
    return rows

"""T10: cost curves. Time and memory against n, d and K, and their log-log slopes compared with theory.

    exact neighbors    build n d^2 (rotation) at most; search at most q n d, less if bounds rule out rows
    landmarks          build n sqrt(n) d (k-means of 2 sqrt(n) cells) at most; search q sqrt(n) d at fixed probes
    softmax fit        a pass is n d K; a factor of the features is n d^2 at most
    predict_topk       n d K

Theory bounds the slope from above: fixed costs flatten a curve at its small end. No single step may exceed it by
much either, because a jump at the size of a cache hides in an average slope.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import kway

from ..datasets import smooth_clusters
from ..peak import working_megabytes
from ..race import PAUSE, Row
from .memory import linear

SLACK = 0.15  # of a slope: what timing noise does to a fit over a factor of 16
CLIFF = 1.7  # a step's cost against what theory says for that step
NOISE = 0.01  # seconds below which a step says nothing about cliffs
QUIET_MB = 32.0  # working memory below which its slope says nothing


@dataclass(frozen=True)
class Curve:
    """One cost against one size."""

    job: str
    axis: str  # n, d, K
    sizes: tuple[int, ...]
    prepare: Callable[[int], Callable[[], Any]]  # size -> the call that is timed
    theory: float  # the slope of time
    memory: float = 1.0  # the slope of memory


class Shape(NamedTuple):
    """The slope of a fitted line."""

    slope: float
    worst_step: float  # cost of the steepest step over theory's


def doubling(first: int, last: int) -> tuple[int, ...]:
    """Return first, 2 first, ... last.

    >>> doubling(5, 40)
    (5, 10, 20, 40)
    """
    return tuple(first * 2**i for i in range((last // first).bit_length()))


def clusters(n: int, d: int = 64) -> Any:
    """Return rows with structure, the same in every run."""
    return smooth_clusters(n, d, 2000)


def flat_build(n: int, d: int = 64) -> Callable[[], Any]:
    data = clusters(n, d)
    return lambda: kway.search.Flat().build(data.X)


def flat_search(n: int, d: int = 64) -> Callable[[], Any]:
    data = clusters(n, d)
    index = kway.search.Flat().build(data.X)
    return lambda: index.nearest(data.Q, 5)


def landmarks_build(n: int) -> Callable[[], Any]:
    data = clusters(n)
    return lambda: kway.search.Landmarks(probes=16).build(data.X)


def landmarks_search(n: int) -> Callable[[], Any]:
    data = clusters(n)
    index = kway.search.Landmarks(probes=16).build(data.X)
    return lambda: index.nearest(data.Q, 5)


def softmax_fit(n: int = 10_000, d: int = 64, K: int = 10) -> Callable[[], Any]:
    """Time a fit of overlapping classes, so that the optimum is finite."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((K, d)).astype(np.float32)
    y = np.arange(n) % K
    X = centers[y] + 2 * rng.standard_normal((n, d)).astype(np.float32)
    return lambda: kway.SoftmaxClassifier(alpha=1e-3).fit(X, y)


def topk(n: int = 4000, d: int = 64, K: int = 5000) -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    model, Q = linear(K, d, rng), rng.standard_normal((n, d), dtype=np.float32)
    return lambda: model.predict_topk(Q, 5)


def curves(quick: bool) -> list[Curve]:
    """Return all curves; a quick run has small sizes."""
    few = 8 if quick else 1
    n, d, K = doubling(10_000, 160_000 // few), doubling(32, 512 // min(few, 4)), doubling(1000, 64_000 // few)
    return [
        Curve("exact neighbors, build", "n", n, flat_build, 1.0),
        Curve("exact neighbors, search", "n", n, flat_search, 1.0),
        Curve("exact neighbors, build", "d", d, lambda d: flat_build(20_000, d), 2.0),
        Curve("exact neighbors, search", "d", d, lambda d: flat_search(20_000, d), 1.0),
        Curve("landmarks, build", "n", n, landmarks_build, 1.5),
        Curve("landmarks, search", "n", n, landmarks_search, 0.5),
        Curve("softmax fit", "n", n, lambda n: softmax_fit(n=n), 1.0),
        Curve("softmax fit", "d", d, lambda d: softmax_fit(d=d), 2.0, 2.0),
        Curve("softmax fit", "K", doubling(4, 64 // min(few, 4)), lambda K: softmax_fit(K=K), 1.0),
        Curve("predict_topk", "n", doubling(2000, 32_000 // few), lambda n: topk(n=n), 1.0),
        Curve("predict_topk", "d", d, lambda d: topk(d=d), 1.0),
        Curve("predict_topk", "K", K, lambda K: topk(K=K), 1.0),
    ]


def shape(sizes: tuple[int, ...], costs: list[float], theory: float, least: float = 0.0) -> Shape:
    """Return the log-log slope by least squares, and the steepest step among costs above `least`.

    >>> shape((1, 2, 4), [3.0, 6.0, 12.0], 1.0)
    Shape(slope=1.0, worst_step=1.0)
    """
    x, c = np.asarray(sizes, float), np.maximum(np.asarray(costs, float), 1e-9)
    slope = float(np.polyfit(np.log(x), np.log(c), 1)[0])
    steps = (c[1:] / c[:-1]) / (x[1:] / x[:-1]) ** theory
    large = steps[c[:-1] >= least]
    return Shape(round(slope, 6), round(float(large.max()), 6) if len(large) else 1.0)


def measure(curve: Curve, rounds: int) -> Row:
    """Measure time and memory at every size."""
    seconds, megabytes = [], []
    for size in curve.sizes:
        call = curve.prepare(size)
        call()  # compiles
        time.sleep(0 if rounds == 1 else PAUSE)
        seconds.append(min(_seconds(call) for _ in range(rounds)))  # the least: noise only ever adds
        megabytes.append(working_megabytes(call).megabytes)
    spent = shape(curve.sizes, seconds, curve.theory, NOISE)
    used = shape(curve.sizes, megabytes, curve.memory, QUIET_MB)
    matters = max(megabytes) >= 4 * QUIET_MB
    good = spent.slope <= curve.theory + SLACK and spent.worst_step <= CLIFF
    good = good and (not matters or used.slope <= curve.memory + SLACK)
    quality = f"steepest step {spent.worst_step:.2f} of theory's; memory at most {max(megabytes):.0f} MB"
    quality += f", slope {used.slope:.2f}" if matters else ""
    points = {"axis": curve.axis, "sizes": list(curve.sizes), "seconds": seconds, "megabytes": megabytes}
    data = f"{curve.axis} = {curve.sizes[0]:,} to {curve.sizes[-1]:,}"
    return Row("T10", f"{curve.job}, against {curve.axis}", data, "theory, at most", spent.slope, curve.theory, None,
               quality, good, unit="slope", points=points)  # fmt: skip


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def t10(rounds: int, quick: bool) -> list[Row]:
    """Measure every curve."""
    return [measure(curve, 1 if quick else 3) for curve in curves(quick)[:: 2 if quick else 1]]

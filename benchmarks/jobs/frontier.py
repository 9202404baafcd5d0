"""Time against quality of each library over its settings, on the same rows. For the plots; there are no goals.

neighbors    seconds for all queries against recall@5 (share of the true 5 nearest that are found)
linear       seconds to fit against accuracy on the test rows
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import kway

from .. import datasets
from ..models import NotInstalled, faiss_flat, faiss_hnsw, faiss_ivf, hnsw, sklearn_knn, sklearn_linear, sklearn_solvers
from ..race import PAUSE, Row, absent

K = 5
ALPHA = 1e-4
PROBES, EF = (2, 4, 8, 16, 32), (16, 32, 64, 128, 256)
STEPS, PASSES, NEWTON_STEPS = (5, 10, 20, 40, 80), (1, 2, 5, 10, 20), (1, 2, 4, 8)
FEW = 64  # features, beyond which Newton's Hessian of (K d)^2 entries takes gigabytes


class Way(NamedTuple):
    """A contestant: a function setting -> result, and its settings."""

    run: Callable[[int], Any]
    settings: tuple[int, ...] = (0,)


def frontier(rounds: int, quick: bool) -> list[Row]:
    """Measure search on images, and fits on images and letters."""
    images = datasets.images("mnist")
    return [
        *neighbors(images, quick),
        *linear(datasets.some(images, 20_000), quick),
        *linear(datasets.letter(), quick),
    ]


def neighbors(data: datasets.Data, quick: bool) -> list[Row]:
    """Measure the recall of every index."""
    flat = kway.search.Flat().build(data.X)
    truth = flat.nearest(data.Q, K).ids
    quality = lambda ids: float((np.asarray(ids)[:, :, None] == truth[:, None, :]).any(axis=2).mean())  # noqa: E731
    ways = {
        "kway exact": lambda: Way(lambda _: flat.nearest(data.Q, K).ids),
        "kway landmarks": lambda: landmarks(data),
        faiss_flat.NAME: lambda: searched(faiss_flat.exact(data.X, K), data.Q),
        faiss_ivf.NAME: lambda: cells(data),
        faiss_hnsw.NAME: lambda: faiss_graph(data),
        hnsw.NAME: lambda: graph(data),
        sklearn_knn.INTEL: lambda: searched(sklearn_knn.exact_intel(data.X, K), data.Q),
    }
    return [line(f"search in {data.name}", data.name, name, way, quality, "recall of the 5 nearest", quick)
            for name, way in ways.items()]  # fmt: skip


def searched(search: Callable, Q: np.ndarray) -> Way:
    return Way(lambda _: search(Q))


def landmarks(data: datasets.Data) -> Way:
    index = kway.search.Landmarks().build(data.X)

    def run(probes: int) -> np.ndarray:
        index.probes = probes
        return index.nearest(data.Q, K).ids

    return Way(run, PROBES)


def cells(data: datasets.Data) -> Way:
    index = faiss_ivf.build(data.X, int(np.sqrt(len(data.X))))

    def run(probes: int) -> np.ndarray:
        index.nprobe = probes
        return index.search(data.Q, K)[1]

    return Way(run, PROBES)


def faiss_graph(data: datasets.Data) -> Way:
    index = faiss_hnsw.build(data.X)

    def run(ef: int) -> np.ndarray:
        index.hnsw.efSearch = ef
        return index.search(data.Q, K)[1]

    return Way(run, EF)


def graph(data: datasets.Data) -> Way:
    index = hnsw.build(data.X)

    def run(ef: int) -> np.ndarray:
        index.set_ef(ef)
        return index.knn_query(data.Q, K)[0].astype(np.int64)

    return Way(run, EF)


def linear(data: datasets.Data, quick: bool) -> list[Row]:
    """Measure the accuracy of every solver; kway uses its own stopping rule."""
    quality = lambda model: float(np.mean(model.predict(data.Q) == data.yq))  # noqa: E731
    fit = lambda f: lambda steps: f(data.X, data.y, ALPHA, steps)  # noqa: E731
    ours = {
        "kway softmax": Way(lambda _: kway.SoftmaxClassifier(alpha=ALPHA).fit(data.X, data.y)),
        "kway SGD": Way(lambda n: kway.SoftmaxClassifier(alpha=ALPHA, solver="sgd", max_iter=n, tol=0.0)
                        .fit(data.X, data.y), PASSES),
    }  # fmt: skip
    theirs = {
        sklearn_linear.NAME: Way(fit(sklearn_linear.softmax), STEPS),
        sklearn_linear.INTEL: Way(fit(sklearn_linear.softmax_intel), STEPS),
        sklearn_solvers.SAGA: Way(fit(sklearn_solvers.saga), PASSES),
        sklearn_solvers.SGD: Way(fit(sklearn_solvers.sgd), PASSES),
    }
    if data.X.shape[1] <= FEW:
        theirs[sklearn_solvers.NEWTON] = Way(fit(sklearn_solvers.newton), NEWTON_STEPS)
    job, what = f"softmax fit on {data.name}", "accuracy on test rows"
    both = (ours | theirs).items()
    return [line(job, data.name, name, lambda way=way: way, quality, what, quick) for name, way in both]


def line(job: str, data: str, name: str, build: Callable[[], Way], quality: Callable, what: str, quick: bool) -> Row:
    """Measure one contestant over its settings."""
    try:
        way = build()
        _timed(way, way.settings[0])  # compiles, and shows what is not installed
    except NotInstalled as error:
        return absent("frontier", job, data, name, error)
    seconds, qualities = [], []
    for setting in way.settings[:2] if quick else way.settings:
        time.sleep(0 if quick else PAUSE)
        spent, answer = _timed(way, setting)
        seconds.append(spent)
        qualities.append(quality(answer))
    points = {"settings": list(way.settings[: len(seconds)]), "seconds": seconds, "quality": qualities, "what": what}
    said = f"{what} {min(qualities):.4f} to {max(qualities):.4f}"
    return Row("frontier", job, data, name, math.nan, min(seconds), None, said, points=points)


def _timed(way: Way, setting: int) -> tuple[float, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that few passes do not converge is what the plot shows
        start = time.perf_counter()
        answer = way.run(setting)
        return time.perf_counter() - start, answer

"""A million classes on a laptop, in about a minute: class means, searched exactly and as bits.

    python examples/million_classes.py [--classes 1e6 --features 64]
    python examples/million_classes.py --way softmax --classes 1e5 [--epochs 6]

Rows come from a seeded generator with known labels: unit centres in all directions, a row is its class's centre plus
noise. First the plan says what each way would take. `--way means` keeps the mean of each class: one pass over the rows,
and an answer is the nearest mean, looked for among all numbers or among codes of one bit a number. `--way softmax`
learns weights, each step summing over a sample of the classes; a minute for 100,000 of them, ten for a million.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sklearn.exceptions import ConvergenceWarning

import kway
from kway.search import Bits, Flat

UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
FRESH = 1000  # rows asked for


@dataclass(frozen=True)
class Run:
    """What a run of softmax showed."""

    rows_a_second: float
    losses: list[float]
    right: float  # share of fresh rows
    bytes: int


@dataclass(frozen=True)
class Found:
    """What class means showed: seconds to fit and of an answer, share of fresh rows that were right."""

    fit: float
    answer: float
    right: float


def means(n_classes: int, n_features: int, rows_per_class: int = 2, noise: float = 0.4) -> dict[str, Found]:
    """Class means, asked exactly and through codes of one bit a number."""
    data = kway.datasets.many_classes(n_classes, n_features, rows_per_class, FRESH, noise, seed=0)
    found = {}
    for name, index in {"exactly": "auto", "as bits": Flat(store=Bits(1, rerank=False))}.items():
        begun = time.perf_counter()
        model = kway.CentroidClassifier(metric="cosine", index=index).fit(data.x_train, data.y_train)
        fitted = time.perf_counter()
        model.predict(data.x_test[:2])  # kernels are loaded
        asked = time.perf_counter()
        right = float((model.predict(data.x_test) == data.y_test).mean())
        found[name] = Found(fitted - begun, (time.perf_counter() - asked) / FRESH, right)
    return found


def learn(n_classes: int, n_features: int, epochs: int, rows_per_class: int = 3, noise: float = 0.4) -> Run:
    """Sampled softmax: train and ask."""
    rows = kway.datasets.many_classes(n_classes, n_features, rows_per_class, 2000, noise, seed=0)
    # a class has one row in K, so a penalty that should not drown it is far below 1 / K
    model = kway.SoftmaxClassifier(solver="sampled", alpha=1e-3 / n_classes, max_iter=epochs, random_state=0)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the epochs are counted, not the gain
        model.fit(rows.x_train, rows.y_train)
    seconds = time.perf_counter() - started
    right = float((model.predict_topk(rows.x_test, 1).ids[:, 0] == rows.y_test).mean())
    return Run(model.n_iter_ * len(rows.y_train) / seconds, model.history_, right, peak())


def peak() -> int:
    """Bytes of memory at most, so far."""
    return UNIT * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextmanager
def counted() -> Iterator[None]:
    """Say at the end how long it took and what memory."""
    begun = time.perf_counter()
    yield
    print(f"in all              {time.perf_counter() - begun:.0f} s, {peak() / 2**20:,.0f} MiB of memory at most")


def show_plan(n_classes: int, n_features: int) -> None:
    """Three ways, before anything is begun."""
    found = kway.plan(2 * n_classes, n_features, n_classes)
    print(f"{n_classes:,} classes x {n_features} features, {2 * n_classes:,} rows; what the plan expects:")
    for name in "softmax", "sampled softmax", "centroids":
        way = found[name]
        fits = "" if found.fits(way) else ", more than there is"
        print(f"  {name:17} {way.fit_seconds:9,.0f} s to fit, {way.fit_bytes / 2**30:5.1f} GiB{fits}")


def show_means(n_classes: int, n_features: int) -> None:
    """Class means."""
    for name, found in means(n_classes, n_features).items():
        print(
            f"means, asked {name}  fitted in {found.fit:.1f} s, {1000 * found.answer:.2f} ms an answer, "
            f"{found.right:.1%} of {FRESH:,} fresh rows right"
        )


def show_softmax(n_classes: int, n_features: int, epochs: int) -> None:
    """Sampled softmax."""
    run = learn(n_classes, n_features, epochs)
    print(f"rows a second       {run.rows_a_second:,.0f}")
    print(f"exact loss          {', '.join(f'{loss:.3f}' for loss in run.losses)}")
    print(f"fresh rows right    {run.right:.1%}")


def main(arguments: list[str] | None = None) -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--way", choices=("means", "softmax"), default="means")
    parser.add_argument("--classes", type=float, default=1e6)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=6, help="of softmax")
    asked = parser.parse_args(arguments)
    n_classes = int(asked.classes)
    with counted():
        show_plan(n_classes, asked.features)
        if asked.way == "means":
            show_means(n_classes, asked.features)
        else:
            show_softmax(n_classes, asked.features, asked.epochs)


if __name__ == "__main__":
    main()

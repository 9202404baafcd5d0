"""Learn a million classes on a laptop, in about a minute: class means, searched exactly and as bits.

    python examples/million_classes.py [--classes 1e6 --features 64]
    python examples/million_classes.py --way softmax --classes 1e5 [--epochs 6]

The rows come from a seeded generator with known labels. The centers of the classes are unit vectors in random
directions, and a row is the center of its class plus noise. First, `kway.plan` estimates the cost of three approaches.
`--way means` computes the mean of each class in one pass over the rows. A prediction is the nearest mean, searched
exactly or among codes of one bit per feature. `--way softmax` learns weights with steps that sum over a sample of the
classes. This takes a minute for 100,000 classes, and ten minutes for a million.
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

RUSAGE_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes per unit of ru_maxrss
N_TEST = 1000  # rows to predict


@dataclass(frozen=True)
class SoftmaxRun:
    """The result of a fit of sampled softmax."""

    rows_per_second: float
    losses: list[float]
    accuracy: float  # on new rows
    bytes: int  # peak memory


@dataclass(frozen=True)
class MeansRun:
    """The result of class means: seconds to fit and per prediction, and the accuracy on new rows."""

    fit_seconds: float
    predict_seconds: float
    accuracy: float


def means(n_classes: int, n_features: int, rows_per_class: int = 2, noise: float = 0.4) -> dict[str, MeansRun]:
    """Fit class means, and search them exactly and among codes of one bit per feature."""
    data = kway.datasets.many_classes(n_classes, n_features, rows_per_class, N_TEST, noise, seed=0)
    runs = {}
    for name, index in {"exactly": "auto", "as bits": Flat(store=Bits(1, rerank=False))}.items():
        started = time.perf_counter()
        model = kway.CentroidClassifier(metric="cosine", index=index).fit(data.x_train, data.y_train)
        fit_seconds = time.perf_counter() - started
        model.predict(data.x_test[:2])  # loads the kernels
        started = time.perf_counter()
        accuracy = float((model.predict(data.x_test) == data.y_test).mean())
        runs[name] = MeansRun(fit_seconds, (time.perf_counter() - started) / N_TEST, accuracy)
    return runs


def learn(n_classes: int, n_features: int, epochs: int, rows_per_class: int = 3, noise: float = 0.4) -> SoftmaxRun:
    """Fit a sampled softmax and predict new rows."""
    data = kway.datasets.many_classes(n_classes, n_features, rows_per_class, 2000, noise, seed=0)
    # a class has a share of 1 / K of the mean loss, so its penalty has to be far below 1 / K
    model = kway.SoftmaxClassifier(solver="sampled", alpha=1e-3 / n_classes, max_iter=epochs, random_state=0)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of epochs is fixed
        model.fit(data.x_train, data.y_train)
    seconds = time.perf_counter() - started
    accuracy = float((model.predict_topk(data.x_test, 1).ids[:, 0] == data.y_test).mean())
    return SoftmaxRun(model.n_iter_ * len(data.y_train) / seconds, model.history_, accuracy, peak_bytes())


def peak_bytes() -> int:
    """Return the peak memory of this process."""
    return RUSAGE_UNIT * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextmanager
def print_totals() -> Iterator[None]:
    """Print the total time and the peak memory at the end."""
    started = time.perf_counter()
    yield
    print(f"total               {time.perf_counter() - started:.0f} s, peak memory {peak_bytes() / 2**20:,.0f} MiB")


def show_plan(n_classes: int, n_features: int) -> None:
    """Print the estimated cost of three approaches."""
    plan = kway.plan(2 * n_classes, n_features, n_classes)
    print(f"{n_classes:,} classes x {n_features} features, {2 * n_classes:,} rows. The plan estimates:")
    for name in "softmax", "sampled softmax", "centroids":
        cost = plan[name]
        fits = "" if plan.fits(cost) else ", does not fit into memory"
        print(f"  {name:17} {cost.fit_seconds:9,.0f} s to fit, {cost.fit_bytes / 2**30:5.1f} GiB{fits}")


def show_means(n_classes: int, n_features: int) -> None:
    """Run class means and print the results."""
    for name, run in means(n_classes, n_features).items():
        print(
            f"means, searched {name}: fitted in {run.fit_seconds:.1f} s, {1000 * run.predict_seconds:.2f} ms per "
            f"prediction, {run.accuracy:.1%} of {N_TEST:,} new rows correct"
        )


def show_softmax(n_classes: int, n_features: int, epochs: int) -> None:
    """Run sampled softmax and print the results."""
    run = learn(n_classes, n_features, epochs)
    print(f"rows per second     {run.rows_per_second:,.0f}")
    print(f"exact loss          {', '.join(f'{loss:.3f}' for loss in run.losses)}")
    print(f"new rows correct    {run.accuracy:.1%}")


def main(arguments: list[str] | None = None) -> None:
    """Parse the options, run, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--way", choices=("means", "softmax"), default="means")
    parser.add_argument("--classes", type=float, default=1e6)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=6, help="number of epochs of the softmax")
    options = parser.parse_args(arguments)
    n_classes = int(options.classes)
    with print_totals():
        show_plan(n_classes, options.features)
        if options.way == "means":
            show_means(n_classes, options.features)
        else:
            show_softmax(n_classes, options.features, options.epochs)


if __name__ == "__main__":
    main()

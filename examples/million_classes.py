"""Softmax over very many classes on two cores: each step sums over a sample of them.

    python examples/million_classes.py [--classes 100000 --features 64 --epochs 6]

Rows come from a seeded generator with known labels: unit centres in all directions, a row is its class's centre plus
noise. Printed are rows learned a second, the exact loss after each epoch (of a fixed sample of rows), how many fresh
rows are answered rightly, and the memory taken. A million classes (--classes 1e6) take about ten times as long.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
import warnings
from dataclasses import dataclass

from sklearn.exceptions import ConvergenceWarning

import kway

UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes


@dataclass(frozen=True)
class Run:
    """What a run showed."""

    rows_a_second: float
    losses: list[float]
    right: float  # share of fresh rows
    bytes: int


def learn(n_classes: int, n_features: int, epochs: int, rows_per_class: int = 3, noise: float = 0.4) -> Run:
    """Train and ask."""
    rows = kway.datasets.many_classes(n_classes, n_features, rows_per_class, 2000, noise, seed=0)
    # a class has one row in K, so a penalty that should not drown it is far below 1 / K
    model = kway.SoftmaxClassifier(solver="sampled", alpha=1e-3 / n_classes, max_iter=epochs, random_state=0)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the epochs are counted, not the gain
        model.fit(rows.x_train, rows.y_train)
    seconds = time.perf_counter() - started
    right = float((model.predict_topk(rows.x_test, 1).ids[:, 0] == rows.y_test).mean())
    peak = UNIT * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Run(model.n_iter_ * len(rows.y_train) / seconds, model.history_, right, peak)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=float, default=1e5)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=6)
    asked = parser.parse_args()
    run = learn(int(asked.classes), asked.features, asked.epochs)
    print(f"{int(asked.classes):,} classes x {asked.features} features")
    print(f"rows a second      {run.rows_a_second:,.0f}")
    print(f"exact loss         {', '.join(f'{loss:.3f}' for loss in run.losses)}")
    print(f"fresh rows right   {run.right:.1%}")
    print(f"memory at most     {run.bytes / 2**20:,.0f} MiB")


if __name__ == "__main__":
    main()

"""Ordinary problems of many classes converge with the defaults: 100 to 2,000 classes, few rows per class, overlap.

`python -m optimum_attack 500 --many` draws as many of any size, and times 40 of them next to scikit-learn.
"""

import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from optimum_attack.many_classes import draw_many, judge_many
from optimum_attack.problems import draw
from optimum_attack.values import objective
from optimum_attack.verdicts import fitted

from kway import SoftmaxClassifier

SMALL = 4e6  # rows x columns x classes of the problems in the short run


@pytest.mark.parametrize("first", [0, *(pytest.param(at, marks=pytest.mark.slow) for at in range(10, 100, 10))])
def test_small_problems_converge(first):
    for seed in range(first, first + 10):
        verdict = judge_many(draw_many(seed, SMALL))
        assert not verdict.warned, str(verdict)
        assert verdict.excess <= 1, str(verdict)


def test_a_class_without_probability_does_not_stop_the_descent():
    """Its curvature was zero at every row, so that its step was 1e20 long, and no step was found."""
    rng, K, n, d = np.random.default_rng(0), 366, 2290, 15
    rare = rng.choice(K, n - 2 * K, p=rng.dirichlet(np.full(K, 0.5)))
    y = np.concatenate([np.arange(K), np.arange(K), rare])
    X = (rng.standard_normal((K, d))[y] + 1.43 * rng.standard_normal((n, d))).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SoftmaxClassifier(alpha=3.3e-7, max_iter=150).fit(X, y)
    assert model.objective_ < 1.5


def test_no_fit_is_worse_than_its_start():
    """Whatever stops it early, and wherever the sample of the rows leads it."""
    for seed in range(60):
        problem = draw(seed, least=True)
        problem.options["max_iter"] = 1 + seed % 4
        model, _, _ = fitted(problem)
        with np.errstate(all="ignore"):
            value, zero = (objective(problem, t * model.coef_, t * model.intercept_) for t in (1.0, 0.0))
        assert value <= zero * (1 + 1e-6), (problem.kind, seed)
        problem = draw_many(seed, 3e5)
        model, _, _ = fitted(replace(problem, options=problem.options | {"max_iter": 1 + seed % 4}))
        assert model.objective_ <= np.log(problem.y.max() + 1) * (1 + 1e-6), seed


def test_overlapping_classes_under_hardly_any_penalty():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 100, 4000)
    X = (rng.standard_normal((100, 64))[y] + 2 * rng.standard_normal((4000, 64))).astype(np.float32)
    model = SoftmaxClassifier(alpha=1e-6).fit(X, y)
    assert model.score(X, y) > 0.99


@pytest.mark.slow
def test_fits_of_any_size_hardly_warn_and_keep_up_with_scikit_learn():
    """KWAY_PROBLEMS sets the number of fits."""
    campaign = Path(__file__).parent
    count = os.environ.get("KWAY_PROBLEMS", "100")
    subprocess.run([sys.executable, "-m", "optimum_attack", count, "--many"], cwd=campaign, check=True)

"""kway: K-way classification from ten classes to a billion.

Every public name is imported on first use, so `import kway` costs a few milliseconds. Imports point down this list:

cli          one file a verb                     confidence   temperature, sets with coverage, "unknown"
report       figures and the page                neighbors    metric x index x vote
select       compare, tune, the main job         linear       loss x penalty x solver
fitted.py    kway.fit, the job from Python       base         score rows, keep k, vote: the one Classifier
featured.py  a classifier with its features      planning     what a job will cost (kway.plan)
mapped.py    one behind a map of its columns
search       the k best rows of each query       store        model files
data         sources, features, datasets.py      compute      threads, kernels, a cluster
progress.py  log_loss.py  soft_max.py  class_scores.py  tables.py (for people)  parameters.py (of models)  errors.py
pipelined.py (a Pipeline in a model file)  light_imports.py, lazy_names.py: a quick start
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kway import light_imports

__version__ = "0.2.0"

_HOME = {  # public name -> the module it lives in; a module's own name stands for the module
    "CentroidClassifier": "kway.neighbors",
    "ConformalClassifier": "kway.confidence",
    "ExemplarClassifier": "kway.neighbors",
    "Features": "kway.data.features.features",
    "Gaussian": "kway.search.spaces.metrics",
    "Haversine": "kway.search.spaces.metrics",
    "Laplacian": "kway.search.spaces.metrics",
    "LeastSquaresClassifier": "kway.linear.named",
    "LinearClassifier": "kway.linear.classifier",
    "LogisticClassifier": "kway.linear.named",
    "MappedClassifier": "kway.mapped",
    "NaiveBayesClassifier": "kway.linear.naive_bayes",
    "NeighborsClassifier": "kway.neighbors",
    "OpenSetClassifier": "kway.confidence",
    "PerceptronClassifier": "kway.linear.named",
    "SVMClassifier": "kway.linear.named",
    "SoftmaxClassifier": "kway.linear.named",
    "TemperatureScaledClassifier": "kway.confidence",
    "cluster": "kway.compute.cluster.session",
    "compare": "kway.select.contest.compare",
    "datasets": "kway.datasets",
    "errors": "kway.errors",
    "explain": "kway.select.reasons",
    "fit": "kway.fitted",
    "load": "kway.store",
    "pairwise": "kway.search.pairwise",
    "plan": "kway.planning.plan",
    "save": "kway.store",
    "search": "kway.search",
    "tune": "kway.select.tune",
}

__all__ = [
    "CentroidClassifier",
    "ConformalClassifier",
    "ExemplarClassifier",
    "Features",
    "Gaussian",
    "Haversine",
    "Laplacian",
    "LeastSquaresClassifier",
    "LinearClassifier",
    "LogisticClassifier",
    "MappedClassifier",
    "NaiveBayesClassifier",
    "NeighborsClassifier",
    "OpenSetClassifier",
    "PerceptronClassifier",
    "SVMClassifier",
    "SoftmaxClassifier",
    "TemperatureScaledClassifier",
    "__version__",
    "cluster",
    "compare",
    "datasets",
    "errors",
    "explain",
    "fit",
    "load",
    "pairwise",
    "plan",
    "save",
    "search",
    "tune",
]

if TYPE_CHECKING:
    from kway import datasets, errors, search
    from kway.compute.cluster.session import cluster
    from kway.confidence import ConformalClassifier, OpenSetClassifier, TemperatureScaledClassifier
    from kway.data.features.features import Features
    from kway.fitted import fit
    from kway.linear.classifier import LinearClassifier
    from kway.linear.naive_bayes import NaiveBayesClassifier
    from kway.linear.named import (
        LeastSquaresClassifier,
        LogisticClassifier,
        PerceptronClassifier,
        SoftmaxClassifier,
        SVMClassifier,
    )
    from kway.mapped import MappedClassifier
    from kway.neighbors import CentroidClassifier, ExemplarClassifier, NeighborsClassifier
    from kway.planning.plan import plan
    from kway.search.pairwise import pairwise
    from kway.search.spaces.metrics import Gaussian, Haversine, Laplacian
    from kway.select.contest.compare import compare
    from kway.select.reasons import explain
    from kway.select.tune import tune
    from kway.store import load, save


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'kway' has no attribute {name!r}")
    if home == f"kway.{name}":
        value = importlib.import_module(home)
    else:
        light_imports.sklearn_base()
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value  # asked for once
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

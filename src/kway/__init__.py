"""kway: K-way classification from ten classes to a billion.

Every public name is imported on first use, so `import kway` costs a few milliseconds. Imports point down this list:

cli          one file per command                confidence   temperature, sets with coverage, "unknown", blend
report       figures and the page                neighbors    metric, index, vote
auto         compare, tune, the main job         linear       loss, penalty, solver
                                                 trees        boosted trees and forests
fitted.py    kway.fit, the job from Python       base         Classifier: score rows, keep k, vote
pipelines.py a classifier behind its features    planning     what a job will cost (kway.plan)
                                                 search       the k best rows of each query
modelfile    model files                         datasets.py  datasets by name (kway.datasets)
tables       reading files, features, datasets   rows         rows in memory, in files, on a GPU or cluster
validation.py, labels.py                         checks of input; labels as class codes
kernels      every numba function                measures.py, probabilities.py

Modules without a folder of their own are errors.py, parameters.py, declared_options.py, progress.py, threads.py,
memory.py, units.py, text_tables.py, suggest.py, lazy_names.py, versions.py and private_names.py (names of other
libraries that are not public).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOME = {  # public name -> the module that defines it; the name of a module -> the module itself
    "BlendClassifier": "kway.confidence",
    "CentroidClassifier": "kway.neighbors",
    "ConformalClassifier": "kway.confidence",
    "ExemplarClassifier": "kway.neighbors",
    "Features": "kway.tables.features.features",
    "Gaussian": "kway.search.metrics",
    "Haversine": "kway.search.metrics",
    "HierarchicalConformalClassifier": "kway.confidence",
    "Laplacian": "kway.search.metrics",
    "KernelSoftmaxClassifier": "kway.linear.kernel_softmax",
    "LeastSquaresClassifier": "kway.linear.named",
    "LinearClassifier": "kway.linear.classifier",
    "LogisticClassifier": "kway.linear.named",
    "MappedClassifier": "kway.pipelines",
    "NaiveBayesClassifier": "kway.linear.naive_bayes",
    "NeighborsClassifier": "kway.neighbors",
    "OpenSetClassifier": "kway.confidence",
    "PerceptronClassifier": "kway.linear.named",
    "SVMClassifier": "kway.linear.named",
    "SoftmaxClassifier": "kway.linear.named",
    "TemperatureScaledClassifier": "kway.confidence",
    "TreesClassifier": "kway.trees",
    "cluster": "kway.rows.cluster.session",
    "compare": "kway.auto.race.compare",
    "datasets": "kway.datasets",
    "drift": "kway.auto.drift",
    "errors": "kway.errors",
    "explain": "kway.auto.reasons",
    "fit": "kway.fitted",
    "inspect": "kway.fitted",
    "load": "kway.modelfile",
    "pairwise": "kway.search.pairwise",
    "plan": "kway.planning.plan",
    "save": "kway.modelfile",
    "search": "kway.search",
    "suggest_rows": "kway.auto.suggest",
    "tune": "kway.auto.tune",
}

__all__ = [
    "BlendClassifier",
    "CentroidClassifier",
    "ConformalClassifier",
    "ExemplarClassifier",
    "Features",
    "Gaussian",
    "Haversine",
    "HierarchicalConformalClassifier",
    "KernelSoftmaxClassifier",
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
    "TreesClassifier",
    "__version__",
    "cluster",
    "compare",
    "datasets",
    "drift",
    "errors",
    "explain",
    "fit",
    "inspect",
    "load",
    "pairwise",
    "plan",
    "save",
    "search",
    "suggest_rows",
    "tune",
]

if TYPE_CHECKING:
    from kway import datasets, errors, search
    from kway.auto.drift import drift
    from kway.auto.race.compare import compare
    from kway.auto.reasons import explain
    from kway.auto.suggest import suggest_rows
    from kway.auto.tune import tune
    from kway.confidence import (
        BlendClassifier,
        ConformalClassifier,
        HierarchicalConformalClassifier,
        OpenSetClassifier,
        TemperatureScaledClassifier,
    )
    from kway.fitted import fit, inspect
    from kway.linear.classifier import LinearClassifier
    from kway.linear.kernel_softmax import KernelSoftmaxClassifier
    from kway.linear.naive_bayes import NaiveBayesClassifier
    from kway.linear.named import (
        LeastSquaresClassifier,
        LogisticClassifier,
        PerceptronClassifier,
        SoftmaxClassifier,
        SVMClassifier,
    )
    from kway.modelfile import load, save
    from kway.neighbors import CentroidClassifier, ExemplarClassifier, NeighborsClassifier
    from kway.pipelines import MappedClassifier
    from kway.planning.plan import plan
    from kway.rows.cluster.session import cluster
    from kway.search.metrics import Gaussian, Haversine, Laplacian
    from kway.search.pairwise import pairwise
    from kway.tables.features.features import Features
    from kway.trees import TreesClassifier


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'kway' has no attribute {name!r}")
    module = importlib.import_module(home)
    value = module if home == f"kway.{name}" else getattr(module, name)
    globals()[name] = value  # found once
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

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

from typing import TYPE_CHECKING

from kway.lazy_names import lazy_names

__version__ = "0.2.0"

_HOME = {  # public name -> the module that defines it, or "" for a module of this name
    "BlendClassifier": "confidence",
    "CentroidClassifier": "neighbors",
    "ConformalClassifier": "confidence",
    "ExemplarClassifier": "neighbors",
    "Features": "tables.features.features",
    "Gaussian": "search.metrics",
    "Haversine": "search.metrics",
    "HierarchicalConformalClassifier": "confidence",
    "Laplacian": "search.metrics",
    "KernelSoftmaxClassifier": "linear.kernel_softmax",
    "LeastSquaresClassifier": "linear.named",
    "LinearClassifier": "linear.classifier",
    "LogisticClassifier": "linear.named",
    "MappedClassifier": "pipelines",
    "NaiveBayesClassifier": "linear.naive_bayes",
    "NeighborsClassifier": "neighbors",
    "OpenSetClassifier": "confidence",
    "PerceptronClassifier": "linear.named",
    "SVMClassifier": "linear.named",
    "SoftmaxClassifier": "linear.named",
    "TemperatureScaledClassifier": "confidence",
    "TreesClassifier": "trees",
    "cluster": "rows.cluster.session",
    "compare": "auto.race.compare",
    "datasets": "",
    "drift": "auto.drift",
    "errors": "",
    "explain": "auto.reasons",
    "fit": "fitted",
    "inspect": "fitted",
    "load": "modelfile",
    "pairwise": "search.pairwise",
    "plan": "planning.plan",
    "save": "modelfile",
    "search": "",
    "suggest_rows": "auto.suggest",
    "tune": "auto.tune",
}

if TYPE_CHECKING:  # "as" tells type checkers that the names are public
    from kway import datasets as datasets
    from kway import errors as errors
    from kway import search as search
    from kway.auto.drift import drift as drift
    from kway.auto.race.compare import compare as compare
    from kway.auto.reasons import explain as explain
    from kway.auto.suggest import suggest_rows as suggest_rows
    from kway.auto.tune import tune as tune
    from kway.confidence import BlendClassifier as BlendClassifier
    from kway.confidence import ConformalClassifier as ConformalClassifier
    from kway.confidence import HierarchicalConformalClassifier as HierarchicalConformalClassifier
    from kway.confidence import OpenSetClassifier as OpenSetClassifier
    from kway.confidence import TemperatureScaledClassifier as TemperatureScaledClassifier
    from kway.fitted import fit as fit
    from kway.fitted import inspect as inspect
    from kway.linear.classifier import LinearClassifier as LinearClassifier
    from kway.linear.kernel_softmax import KernelSoftmaxClassifier as KernelSoftmaxClassifier
    from kway.linear.naive_bayes import NaiveBayesClassifier as NaiveBayesClassifier
    from kway.linear.named import LeastSquaresClassifier as LeastSquaresClassifier
    from kway.linear.named import LogisticClassifier as LogisticClassifier
    from kway.linear.named import PerceptronClassifier as PerceptronClassifier
    from kway.linear.named import SoftmaxClassifier as SoftmaxClassifier
    from kway.linear.named import SVMClassifier as SVMClassifier
    from kway.modelfile import load as load
    from kway.modelfile import save as save
    from kway.neighbors import CentroidClassifier as CentroidClassifier
    from kway.neighbors import ExemplarClassifier as ExemplarClassifier
    from kway.neighbors import NeighborsClassifier as NeighborsClassifier
    from kway.pipelines import MappedClassifier as MappedClassifier
    from kway.planning.plan import plan as plan
    from kway.rows.cluster.session import cluster as cluster
    from kway.search.metrics import Gaussian as Gaussian
    from kway.search.metrics import Haversine as Haversine
    from kway.search.metrics import Laplacian as Laplacian
    from kway.search.pairwise import pairwise as pairwise
    from kway.tables.features.features import Features as Features
    from kway.trees import TreesClassifier as TreesClassifier

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOME)
__all__ += ["__version__"]

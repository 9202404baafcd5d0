"""Datasets by name, and synthetic ones.

load(name)          a set of the package (digits, post-offices) or of scikit-learn, or a file NAME.npz or NAME.csv.gz of
                    the folder $KWAY_DATA
digits()            5,000 + 1,000 handwritten digits, part of the package
names()             every name that `load` knows
separable, overlapping, outliers, many_classes      seeded synthetic sets
counter_rows, CounterRows   rows of a billion classes that are computed when needed, on a GPU
"""

from kway.rows.gpu.generated_rows import CounterRows, counter_rows
from kway.tables.datasets.arrays import Dataset
from kway.tables.datasets.catalog import digits, load, names
from kway.tables.datasets.synthetic import many_classes, outliers, overlapping, separable

__all__ = [
    "CounterRows",
    "Dataset",
    "counter_rows",
    "digits",
    "load",
    "many_classes",
    "names",
    "outliers",
    "overlapping",
    "separable",
]

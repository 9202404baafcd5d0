"""`kway.datasets`: data by name.

load(name)          an embedded set (digits, post-offices), one of scikit-learn's, or a file of the folder $KWAY_DATA,
                    NAME.npz or NAME.csv.gz
digits()            5,000 + 1,000 real handwritten digits, in the package
names()             every name that `load` knows here
separable, overlapping, outliers, many_classes      seeded synthetic sets
counter_rows, CounterRows   rows of a billion classes that are never stored; on a GPU, with their codes
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

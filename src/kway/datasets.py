"""`kway.datasets`: data by name.

load(name)          an embedded set (digits, post-offices), one of scikit-learn's, or a file of the folder $KWAY_DATA,
                    NAME.npz or NAME.csv.gz
digits()            5,000 + 1,000 real handwritten digits, in the package
names()             every name that `load` knows here
separable, overlapping, outliers, many_classes      seeded synthetic sets
"""

from kway.data.datasets.catalog import digits, load, names
from kway.data.datasets.dataset import Dataset
from kway.data.datasets.synthetic import many_classes, outliers, overlapping, separable

__all__ = ["Dataset", "digits", "load", "many_classes", "names", "outliers", "overlapping", "separable"]

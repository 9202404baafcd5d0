"""Data by name; `kway.datasets` has the public names.

arrays       Dataset, and the files of arrays: npz, libsvm, npy
catalog      load(name), names(): embedded sets, scikit-learn's, the files of $KWAY_DATA
synthetic    seeded sets: separable, overlapping, outliers, many_classes
embedded/    digits and post offices, each with its license
"""

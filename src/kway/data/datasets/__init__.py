"""Data by name: `kway.datasets` is the public door to this room.

dataset        Dataset: rows and labels, with a test part where the source has one
catalog        load(name), names(): embedded sets, scikit-learn's, the files of $KWAY_DATA
synthetic      seeded sets: separable, overlapping, outliers, many_classes
array_files    npz and libsvm files -> Dataset
embedded/      digits and post offices, each with its licence beside it
"""

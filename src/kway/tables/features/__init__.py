"""Tables -> rows of numbers X (n, d), learned from training rows only.

features     Features, the transformer: fit, transform, explain, model files
parts        the parts of Features, each of which turns columns into a block of X, and how they are learned
columns      the kind of a column, and its values as numbers, words, parts of a date, vectors or codes
numbers      missing values filled and flagged, columns centered and scaled; scaling of a matrix
text         tf-idf of named terms
shapes       edges and patches of images
embedder     texts and images -> vectors by a model or a function, stored on disk
components   columns scaled or mixed so that rows of the same class are near each other
"""

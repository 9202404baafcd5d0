"""Tables -> rows of numbers X (n, d), learned from training rows only.

features         Features, the transformer: fit, transform, explain, model files
learn_features   how it learns: the kind of every column -> parts, and a record of each column
columns          the kind of a column, and its values as numbers, words, parts of a date or vectors
encoders         the parts: each reads columns and makes a block of X
numbers          gaps filled and flagged, centered and scaled; scaling of a matrix
text             tf-idf of named terms
shapes           edges and patches of images
embedder         texts and images -> vectors by a model or a function, kept on disk
components       columns weighted or mixed so that rows of a class lie together
"""

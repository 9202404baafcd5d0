"""Tables to rows of numbers X (n, d), learned from training rows only.

features         Features, the transformer: fit, transform, explain, model files
learn_features   how it learns: the kind of every column -> parts and what became of each column
column_kinds     number, true/false, date, category, text, vector, or of no use
columns          one column as numbers, words, parts of a date, vectors
encoders         the parts: each reads columns and makes a block of X
numbers          gaps filled and flagged, centred and scaled        one_hot   a category as columns of 0 and 1
text             tf-idf of named terms (vocabulary: which, and counts) scaling   rows that are numbers already
shapes           edges and patches of images
components       columns weighed or mixed so that rows of a class lie together (column_map: what is learned of them)
hashed_text      as model files of 0.1 hold text                    unit_rows   rows of length 1
embedder         texts -> vectors by a model or a function          vectors_cache   those vectors, kept on disk
"""

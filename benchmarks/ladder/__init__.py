"""The vectorization ladder: the same work by scalar loops, vectors, matrices and kway's kernels, each timed.

products    a matrix product: loops (interpreted, compiled, in C), dot, matrix-vector, matrix-matrix
distances   a distance matrix: loops over numbers, pairs, rows, none
gradients   the gradient of logistic regression (0 against 1) and of softmax (all digits)
neighbors   the 5 nearest of each of a thousand digits
"""

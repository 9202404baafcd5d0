"""All numba functions, one file per subject. Kernels do not check their input.

jit            njit as kway uses it, and the cache of compiled kernels
lanes          features of this CPU, and instructions without a name in numba
assembler      short names for LLVM instructions
float32        limits of float32 products
distances      exact distances of pairs of rows
topk           the k nearest of each query, in heaps
cells          landmark cells: batches of queries, and one query at a time
votes          votes of the k nearest
trees          leaves of decision trees, Shapley values of columns
product_tiles  register tiles of the products of linear models
linear/        losses and the inner loops of solvers
certified/     exact search: bounds, and the rows that they leave
codes/         codes of few bits
features/      texts, images, maps of columns
"""

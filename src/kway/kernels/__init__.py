"""All numba functions, one file per subject. Kernels do not check their input; their callers do.

jit            njit as kway uses it, and the cache of compiled kernels
lanes          features of this CPU, and instructions without a name in numba
assembler      short names for LLVM instructions
float32        limits of float32 products
distances      exact distances of pairs of rows
topk           the k nearest rows of each query, in heaps
cells          search of landmark cells, for batches of queries and for one query
votes          counts of votes of the k nearest rows
trees          leaves of decision trees, and Shapley values of columns
product_tiles  register tiles of the products of linear models
linear/        losses and the inner loops of solvers
certified/     exact search: bounds, and the rows that they leave
codes/         rows stored in few bits per value
features/      features of texts and images, and maps of columns
"""

"""Every numba function, a file a theme: an edit recompiles that and what draws on it. Kernels trust their input.

how they are made   jit (njit as kway uses it, and the cache)
                    lanes (what this CPU can do)  assembler (LLVM's terms)
what all use        product_tiles  topk  float32 (what it holds of products)
                    distances (gap_sums: two of them, as LLVM instructions)
landmarks           cells  one_query
linear/             losses and the inner loops of solvers
certified/          exact search: bounds, and the rows that they leave
codes/              codes of few bits
voting/             votes
features/           texts, images
"""

"""Every numba function, a file a theme: an edit recompiles that and what draws on it. Kernels trust their input.

how they are made   jit (njit as kway uses it)  source_stamp (until when one is kept)
                    lanes (what this CPU can do)  assembler (LLVM's terms)
what all use        product_tiles  topk  float32 (what it holds of products)
                    distances (gap_sums: two of them, as machine instructions)
landmarks, hashes   cells  cell_scan  one_query  buckets
linear/             losses and the inner loops of solvers
certified/          exact search: bounds, and the rows that they leave
codes/              codes of few bits
voting/             votes
features/           texts, images
"""

"""Every numba function, a file a theme, so that an edit recompiles one theme. Kernels trust their input.

how they are made   jit (njit as kway uses it)  lanes (what this CPU can do)  assembler (LLVM's terms)
linear models       losses  loss_numbers  hinge  fused  product_tiles  csr  sgd  sampled  coordinate  dual  one_vs_all
                    hinge_newton
exact search        distances  topk  sketch  byte_rows  tile_l1  tile_l2  sweep  warm  refine  sparse
landmarks, hashes   cells  buckets
codes of few bits   bits  bit_tables  bit_first  bit_scan  bit_estimates  bit_cells  reorder  counter (rows that need
                    not be stored)
votes               votes  every_k  exemplars  components
texts, images       ngrams  edges
"""

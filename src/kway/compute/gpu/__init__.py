"""Work on a GPU through torch: the only place that imports it, and only when a device other than "cpu" is asked for.

device.py       which device ("cpu" | "cuda" | "auto"), arrays to it and back, its memory
far_rows.py     rows that stay there, which the host cuts and multiplies and never copies

Of search:
products.py     distances that are products: keys, thresholds, exact values
exact.py        the k nearest rows, proven: float32 products, survivors in float64
int8_search.py  the same through bytes, for very many rows; int8_tiles.py (codes, bounds), int8_kernels.py (Triton)
search.py       which exact search runs
bit_codes.py    the k nearest by codes of a few bits a column; sign_filter.py: 512 signs filtered first
cells.py        the k nearest of the rows of some landmark cells; clusters.py: k-means
class_means.py  means of the rows of classes, and the nearest of these
codes.py        the nearest of a billion by 512-bit codes; code_kernels.py (CUDA C++), code_lists.py (Triton)
counter.py      rows from a counter, never stored; counter_kernels.py (Triton)
nvrtc.py        CUDA C++ compiled at run time

Of linear models:
losses.py           the losses' formulas over blocks of scores on the device
rows.py             rows on the device: value, gradient and scores
bends.py            products with the Hessian
factors.py          inverse Hessians a class, made and applied there
class_scores.py     some classes of a softmax against all rows, for shards; talk.py  shards that talk by all_reduce
batches.py          steps from a few rows: weights that live on the device
best_classes.py     class rows scored in blocks: the best k, the sum over all
class_answers.py    answers of a linear model: labels, scores, probabilities as tensors
sampled_weights.py  steps of sampled softmax: few class rows, in place
softmax_step.py     such a step over very many classes: weights updated in place, scores kept or computed twice
softmax_tiles.py    its Triton kernels: exponentials straight from a product's accumulators
"""

"""Search on the device.

products.py     distances that are products: keys, thresholds, exact values
exact.py        the k nearest rows, proven: float32 products, survivors in float64
int8_search.py  the same through bytes, for very many rows; int8_tiles.py (codes, bounds), int8_kernels.py (Triton)
search.py       which exact search runs
cells.py        the k nearest of the rows of some landmark cells; clusters.py: k-means
class_means.py  means of the rows of classes, and the nearest of these
"""

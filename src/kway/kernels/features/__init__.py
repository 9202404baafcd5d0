"""Kernels of features.

ngrams       terms of texts
edges        edges of images
soft_votes   soft votes of rows on each other, from which maps of columns are learned
"""

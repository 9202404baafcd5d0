"""Kernels of features.

edges        edges of images
soft_votes   soft votes of rows on each other, from which maps of columns are learned
"""

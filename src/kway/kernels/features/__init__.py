"""Kernels of features: ngrams (terms of texts), edges (of images)."""

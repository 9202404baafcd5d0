"""Kernels of features: ngrams (words and pieces of texts as terms)  edges (of images)."""

"""Kernels of votes: the labels of the k best become shares.

votes        the vote of the k nearest, for one k or for every k
soft_votes   votes of rows on each other and their gradients, from which maps of columns are learned
"""

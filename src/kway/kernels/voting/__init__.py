"""Kernels of votes: the labels of the k best become shares.

votes  every_k      one k; every k from 1 on at once
exemplars           one linear classifier a row: its loss, and what its score is worth
soft_votes          votes of rows on each other, and their slopes: what maps of columns are learned by
"""

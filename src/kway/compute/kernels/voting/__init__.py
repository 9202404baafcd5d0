"""Kernels of votes: the labels of the k best become shares.

votes  every_k      one k; every k from 1 on at once
exemplars           the examples of each class
components          which rows hang together
"""

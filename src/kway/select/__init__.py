"""Choosing a classifier: splits, every family tuned and compared on the same folds."""

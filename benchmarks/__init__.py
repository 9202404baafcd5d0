"""Benchmarks: kway and other libraries ("peers") timed on the same work.

python -m benchmarks [--quick] [T4 ...]         all T rows, or those named
python -m benchmarks ladder                     the gain from vectorization
python -m benchmarks T4 --against CHECKOUT      this checkout against another checkout of kway
"""

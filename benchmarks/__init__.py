"""Measurements of kway and its peers on the same work.

python -m benchmarks [--quick] [T4 ...]         every T row, or those named
python -m benchmarks ladder                     what vectorizing is worth
python -m benchmarks T4 --against CHECKOUT      kway alone, in turns with kway of another checkout
"""

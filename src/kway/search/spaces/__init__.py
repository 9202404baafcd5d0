"""Where rows lie and what near means there.

distances.py    what the engine computes, and in which space
metrics.py      what people ask for: units, similarity, names (METRICS)
rows.py         rows, dense or CSR
units.py        units in which nothing overflows; powers.py: rows times powers of two
"""

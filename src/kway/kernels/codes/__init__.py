"""Kernels of codes of a few bits per column.

bits        codes made and decoded
bit_tables  the first filter: groups of bits of all rows, 32 rows at once
bit_scan    scans of all rows; estimates of given rows
bit_cells   scans of landmark cells
counter     rows from a counter, which need not be stored
"""

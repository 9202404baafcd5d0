"""Kernels of codes of a few bits per column.

bits        encoding and decoding
bit_tables  the first filter: groups of bits of all rows, 32 rows at once
bit_scan    scans of all rows; estimates of given rows
bit_cells   scans of landmark cells
"""

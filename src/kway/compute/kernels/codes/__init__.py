"""Kernels of codes of a few bits a column.

bits  bit_estimates  reorder    codes made, products estimated, the order that a scan reads
bit_first  bit_tables           the first bits of all rows, eight rows at once
bit_scan  bit_cells             whole scans: of all rows, of cells
counter                         rows from a counter, which need not be stored
"""

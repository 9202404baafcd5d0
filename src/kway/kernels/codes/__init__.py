"""Kernels of codes of a few bits per column.

bits          rotation, encoding and decoding
row_tiles     rows transposed into nibbles for look-up tables of four bits
sum_tables    products of a query with all bits of many rows
bit_scan      the scan of all rows; estimates of given rows
bit_cells     the scan of landmark cells
first_filter  a filter by a part of the bits, before the scan of very many rows
"""

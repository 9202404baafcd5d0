"""Kernels of codes of a few bits per column.

bits          rotation, encoding and decoding
row_tiles     rows transposed into nibbles, and products of a query with them by look-up tables of four bits
bit_scan      the scan of all rows; estimates of given rows
bit_cells     the scan of landmark cells
first_filter  a filter by a part of the bits, before the scan of very many rows
"""

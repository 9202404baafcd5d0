"""Rows that come, or stay, some at a time.

row_stream       DATA of any size: what the reader gives, in pieces
row_parts        the same cut into parts that other processes read
labelled_blocks  blocks (X, y) of a generator, checked as they come
row_blocks       queries that stay as they are stored, read block by block
file_rows        rows larger than memory: mapped files, read some at a time
sparse_files     the same for sparse rows
"""

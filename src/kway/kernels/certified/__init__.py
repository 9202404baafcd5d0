"""Kernels of certified search: lower bounds of distances, and exact distances of the rows that the bounds leave.

sketch    compute short sketches of rows, and encode rows as bytes
tiles     compare byte codes of queries and rows, with the widest instructions of the CPU
sweep     search: find a first radius, scan all codes, and measure the few rows that remain
"""

"""Kernels of certified search: bounds on distances, and the rows that bounds leave.

sketch  byte_rows       rows made short, rows as bytes
tile_l1  tile_l2  ways  sums of such rows, in the widest instructions at hand
tiles                   such sums against thresholds, whatever the distance
sweep  warm  refine     all rows against a radius, a radius to begin with, the few that are left
sparse                  the same of CSR rows
"""

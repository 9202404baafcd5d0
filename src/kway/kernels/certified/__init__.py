"""Kernels of certified search: bounds on distances, and the rows that bounds leave.

sketch    rows made short; rows as bytes
tiles     sums of such rows in the widest instructions of the CPU, compared with thresholds
sweep     a first radius, all rows against it, exact distances of the few that are left
"""

"""Rows as codes of a few bits: scanned, and built from streams.

bit_scan.py      the k best by codes
bit_filter.py    queries as a scan reads them, and the filter that each asks all rows first
streams.py       codes of rows that come in blocks; growing_codes.py: all of them
"""

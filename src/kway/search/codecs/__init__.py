"""How an index stores rows: as given (store=None), or as codes of fewer bytes.

stores.py      Store and Codes, the interface of every way to store rows; the list of stores; StoredRows, the rows of
               an index
int8.py        Int8: one byte per value
bits.py        Bits: 1, 2 or 4 bits per column, with an estimate of every product and its error bar; CenteredBits
bit_scan.py    a search of all rows by their bits
block_codes.py codes of rows that come in blocks
gpu_codes.py   codes of rows that are on a GPU
"""

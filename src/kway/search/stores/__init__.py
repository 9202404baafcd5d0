"""How rows are kept: as given (store=None), or as codes of fewer bytes.

base.py    Store and Codes: what every way of coding rows offers      int8.py    Int8: one byte a value
bits.py    Bits: 1, 2 or 4 bits a column, with an estimate of every product and its error bar
centred_bits.py    CentredBits: the same about the landmark of a cell
far_codes.py    codes that were made on a device, and are there until somebody reads them
kept.py    KeptRows: full rows, codes, or both, as an index holds them, adds to, and writes to a model file
"""

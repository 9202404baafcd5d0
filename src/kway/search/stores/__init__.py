"""How rows are kept: as given (store=None), or as codes of fewer bytes.

base.py    Store and Codes: what every way of coding rows offers      int8.py    Int8: one byte a value
kept.py    KeptRows: full rows, codes, or both, as an index holds them, adds to, and writes to a model file
"""

"""How an index stores rows: as given (store=None), or as codes of fewer bytes.

stores.py      Store and Codes, the interface of every way to store rows; StoredRows, the rows of an index
int8.py        Int8: one byte per value
bits.py        Bits: 1, 2 or 4 bits per column, with an estimate of every product and its error bar; CenteredBits
bit_scan.py    a scan of bits
block_codes.py codes of rows that come in blocks
gpu_codes.py   codes of rows that are on a GPU
"""

from __future__ import annotations

from typing import Any

from kway.search.codecs.stores import Store


def store_from(facts: dict[str, Any]) -> Store:
    """The store that `Store.facts` described."""
    from kway.search.codecs.bits import Bits
    from kway.search.codecs.int8 import Int8

    given = dict(facts)
    stores: dict[str, type[Store]] = {Int8.name: Int8, Bits.name: Bits}
    return stores[given.pop("name")](**given)

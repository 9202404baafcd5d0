"""The sizes of blocks."""

import pytest

from kway.memory import BLOCK_BYTES, CACHE_BYTES, rows_per_block


@pytest.mark.parametrize(
    ("row_bytes", "block_bytes", "wanted"),
    [(8, BLOCK_BYTES, BLOCK_BYTES // 8), (3, 10, 3), (4 * CACHE_BYTES, CACHE_BYTES, 1), (0, 10, 10)],
)
def test_a_block_holds_as_many_rows_as_fit_and_at_least_one(row_bytes, block_bytes, wanted):
    assert rows_per_block(row_bytes, block_bytes) == wanted

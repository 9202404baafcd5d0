"""The page about tables says what the record says."""

import json

from benchmarks.tables import RESULTS
from benchmarks.tables_page import PAGE, text


def test_the_page_is_that_of_the_record():
    record = json.loads((RESULTS / "tables.json").read_text())
    assert PAGE.read_text() == text(record), "run python -m benchmarks.tables_page"
    assert len(record["tables"]) == record["summary"]["tables"] == 30

"""Summaries of columns: one list of names serves all columns, however many there are."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from kway.auto.columns import summarize_columns
from kway.auto.train_test import read_train_test
from kway.tables.features.features import Features
from kway.tables.reading import RowsInMemory


class CountedTable:
    """A table that counts how often its list of names is made, which takes time for every column."""

    def __init__(self, table):
        self.table, self.n_lists = table, 0

    @property
    def column_names(self):
        self.n_lists += 1
        return self.table.column_names

    def __getattr__(self, name):
        return getattr(self.table, name)


def test_names_are_listed_once_for_all_columns():
    table = pa.table({f"c{j}": np.arange(40) % (j + 2) for j in range(30)})
    data = read_train_test(RowsInMemory(table, np.arange(40) % 2))
    features = Features().fit(data.rows)
    counted = CountedTable(data.rows)
    columns = summarize_columns(features, replace(data, rows=counted))
    assert [column.example for column in columns] == [str(data.rows[c][0]) for c in table.column_names]
    assert counted.n_lists == 1

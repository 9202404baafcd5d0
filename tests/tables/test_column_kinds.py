"""What columns are taken for, told from the values."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from kway.tables.features.columns import kind_of, rare_below
from kway.tables.sources.frames import as_table
from kway.tables.sources.values import convert

RNG = np.random.default_rng(0)
N = 400
SENTENCES = [
    f"please {v} my {w} today number {i}" for i, (v, w) in enumerate(zip(["find", "send"] * 200, ["card", "key"] * 200))
]

CASES = {
    "number": [
        RNG.standard_normal(N),
        RNG.integers(0, 5, N),  # few whole numbers stay numbers
        RNG.permutation(10 * N)[:N],  # distinct whole numbers, far apart
        [None, *RNG.standard_normal(N - 1)],
        ["?", *map(str, RNG.standard_normal(N - 1))],  # text only because of a gap
        ["?", "NA", "3", "4", "5"] * 80,  # words that stand for a gap do not make it text
        [5, None] * 200,  # one value, but in half of the rows only
        list(range(10)),  # too few rows to call them ids
    ],
    "true/false": [RNG.random(N) < 0.5],
    "date": [
        [dt.date(2024, 1, 1) + dt.timedelta(days=int(d)) for d in RNG.integers(0, 900, N)],
        [dt.datetime(2024, 1, 1, int(h)) for h in RNG.integers(0, 24, N)],
        [f"2024-03-{d:02d}" for d in RNG.integers(1, 29, N)],
    ],
    "category": [
        RNG.choice(["red", "green", "blue"], N),
        RNG.choice(["strongly agree with it", "do not agree with it"], N),
        RNG.choice(["007", "008", "010"], N),
        RNG.choice(["1", "2", "x"], N),
        ["only", None] * 200,
    ],
    "text": [
        SENTENCES,
        ["".join(RNG.choice(list("abcdefghij"), 8)) for _ in range(N)],  # names: distinct words without digits
        [None, *SENTENCES[1:]],
        [f"天气 {i} 很好" for i in range(N)],
    ],
    "id": [
        list(range(1000, 1000 + N)),
        RNG.permutation(N),
        RNG.permutation(int(1.6 * N))[:N],  # ids of a part of the rows
        [f"a{i:05d}-{i * 7919 % 1000:03d}f" for i in range(N)],
    ],
    "constant": [[3.5] * N, ["same"] * N, [True] * N, [dt.date(2024, 1, 1)] * N],
    "empty": [[None] * N, [""] * N, [float("nan")] * N],
    "vector": [[[1.0, 2.0]] * N],
    "unknown": [[{"a": 1}] * N],
}


@pytest.mark.parametrize(("kind", "values"), [(kind, v) for kind, group in CASES.items() for v in group])
def test_kind(kind, values):
    values = values.tolist() if isinstance(values, np.ndarray) else values
    table = convert(pa.table({"x": pa.array(values, from_pandas=True)})).table
    assert kind_of(table.column("x")).name == kind


def test_mixed_columns_are_said():
    mostly = convert(pa.table({"x": ["?", "unknown"] + [f"{v:.3f}" for v in RNG.random(98)]}))
    assert kind_of(mostly.table.column("x")).name == "number"
    assert mostly.strays == (
        "column 'x': 1 cell is not numbers and read as missing: 'unknown' in row 2 (1.0% of the rows)",
    )
    half = kind_of(pa.array(["7", "low"] * 50))
    assert half.name == "category"
    assert "mixes numbers (50% of rows) and words" in half.note


def test_nulls_in_a_list_of_words_are_left_out():
    lists = [["a", None, "b"], ["c"], None, [], [None], [None, "d", ""]]
    words = ["a b", "c", None, "", "", "d "]
    assert as_table({"t": lists}).to_pydict() == {"t": words}
    chunks = pa.chunked_array([lists[:1], lists[1:]], pa.large_list(pa.large_string()))
    assert as_table(pa.table({"t": chunks}).slice(1)).to_pydict() == {"t": words[1:]}


def test_dictionary_columns_and_views():
    words = pa.array(["a", "b"] * 50)
    for column in (words.dictionary_encode(), words.cast(pa.string_view()), pa.chunked_array([words, words])):
        assert kind_of(column).name == "category"


def test_numbers_that_were_made_a_category():
    assert kind_of(pa.array([1, 2, 3] * 20).dictionary_encode()).levels == ("1", "2", "3")


def test_rare_below():
    assert [rare_below(n) for n in (10, 150, 500, 5000, 100_000)] == [2, 2, 5, 10, 100]


def test_levels_are_the_frequent_ones():
    values = ["a"] * 500 + ["b"] * 400 + [f"rare{i}" for i in range(100)]
    assert kind_of(pa.array(values)).levels == ("a", "b")


def test_infinite_values_are_told():
    values = RNG.standard_normal(N)
    values[:3] = [np.inf, -np.inf, np.inf]
    found = kind_of(pa.array(values))
    assert found.name == "number"
    assert found.note == "infinite in 3 rows, read as missing"
    assert kind_of(pa.array(values[3:])).note == ""

"""Blocks and folders of rows as no caller should give them: a sentence, or what all rows together teach."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from pyarrow import csv, parquet

import kway
from kway.errors import KwayError
from kway.linear.solvers import Sampled
from kway.search import Bits, Flat, Int8, Landmarks

Y = np.arange(300) % 3
X = np.random.default_rng(0).normal(size=(300, 4)) + 4 * np.eye(3, 4)[Y]
BLOCKS = [(X[i : i + 40], Y[i : i + 40]) for i in range(0, 300, 40)]
MODELS = {
    "softmax": kway.SoftmaxClassifier,
    "sampled": lambda: kway.SoftmaxClassifier(solver=Sampled(negatives=1, hard=0), max_iter=5),
    "means": kway.CentroidClassifier,
    "bytes": lambda: kway.NeighborsClassifier(3, index=Flat(store=Int8(rerank=False))),
    "cells": lambda: kway.NeighborsClassifier(3, index=Landmarks(8, store=Bits(4, rerank=False))),
}
x, y = BLOCKS[6]
BAD = {
    "no pair": x,
    "no labels": (x, None),
    "a label too few": (x, y[:-1]),
    "labels as words": (x, y.astype(str)),
    "labels of two axes": (x, np.column_stack([y, y])),
    "a label that is not a number": (x, np.where(np.arange(40) == 3, np.nan, y)),
    "a masked label": (x, np.ma.masked_array(y, np.arange(40) == 3)),
    "a masked value": (np.ma.masked_array(x, np.arange(160).reshape(40, 4) == 3), y),
    "a column too few": (x[:, :3], y),
    "a column too many": (np.hstack([x, x]), y),
    "words": (np.full((40, 4), "x"), y),
    "one axis": (x[:, 0], y),
    "NaN": (np.where(x == x[7, 2], np.nan, x), y),
    "infinity": (np.where(x == x[7, 2], np.inf, x), y),
}
ODD = {
    "empty": (x[:0], y[:0]),
    "float32": (x.astype(np.float32), y),
    "lists": (x.tolist(), y.tolist()),
    "Fortran's order": (np.asfortranarray(x), y),
    "labels as floats": (x, y.astype(float)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_bad_block_is_said(name):
    taken = []
    for what, block in BAD.items():
        try:
            MODELS[name]().fit_blocks(iter([*BLOCKS[:6], block, *BLOCKS[7:]]))
        except KwayError:
            continue
        taken.append(what)
    for what in (5, "abc", {"a": 1}, [], [(x[:0], y[:0])]):
        with pytest.raises(KwayError):
            MODELS[name]().fit_blocks(what)
    assert not taken


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_an_odd_block_is_learned_from(name):
    for block in ODD.values():
        model = MODELS[name]().fit_blocks(iter([*BLOCKS[:6], block, *BLOCKS[7:]]))
        assert model.score(X, Y) > 0.9
    model = MODELS[name]().fit_blocks(iter([*BLOCKS, (X[:4] + 40, np.full(4, 9))]))  # a class that comes last
    assert model.classes_.tolist() == [0, 1, 2, 9]


@pytest.mark.parametrize("store", [Int8(), Int8(rerank=False), Bits(1), Bits(4), Bits(1, rerank=False)], ids=str)
@pytest.mark.parametrize("recipe", [Flat, Landmarks])
def test_codes_of_odd_rows(recipe, store):
    rng = np.random.default_rng(0)
    odd = {
        "one row": rng.normal(size=(1, 5)),
        "one column": rng.normal(size=(50, 1)),
        "equal rows": np.repeat(rng.normal(size=(1, 8)), 40, axis=0),
        "zeros": np.zeros((30, 6)),
        "huge": 1e30 * rng.normal(size=(60, 4)),
        "tiny": 1e-150 * rng.normal(size=(60, 4)),
        "one far": np.vstack([rng.normal(size=(60, 4)), [[1e12, 0, 0, 0]]]),
        "a constant": np.column_stack([rng.normal(size=(50, 3)), np.full(50, 1e9)]),
    }
    for name, rows in odd.items():
        for metric in ("euclidean", "cosine", "dot"):
            k = min(3, len(rows))
            try:
                found = recipe(store=store).build(rows, metric).search(rows, k)
            except KwayError:
                continue
            assert ((found.ids >= 0) & (found.ids < len(rows))).all(), (name, metric)
            assert all(len(set(ids)) == k for ids in found.ids.tolist()), (name, metric)
            assert not np.isnan(found.scores).any(), (name, metric)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kinds", [(sp.csr_matrix,), (sp.csr_matrix, np.asarray)], ids=["all", "some"])
@pytest.mark.parametrize("name", MODELS)
def test_sparse_blocks(name, kinds):
    blocks = [(kinds[i % len(kinds)](a), b) for i, (a, b) in enumerate(BLOCKS)]
    try:
        assert MODELS[name]().fit_blocks(iter(blocks)).score(X, Y) > 0.9
    except KwayError as error:
        assert "sparse" in str(error)  # noqa: PT017


def folder_of(path, kind: str, seventh):
    """Ten files of 30 rows, the eighth changed; None: it is not there."""
    path.mkdir()
    for i in range(10):
        part = slice(30 * i, 30 * i + 30)
        table = pa.table({**{name: X[part, j] for j, name in enumerate("abcd")}, "t": Y[part]})
        table = seventh(table) if i == 7 else table
        if kind == "parquet":
            parquet.write_table(table, path / f"{i}.parquet")
        else:
            csv.write_csv(table, path / f"{i}.csv")
    return path


def with_column(name: str, values: list):
    return lambda table: table.set_column(table.column_names.index(name), name, pa.array(values))


REFUSED = {
    "a column is missing": lambda table: table.drop_columns(["c"]),
    "a column more": lambda table: table.append_column("z", pa.array(np.ones(30))),
    "words": with_column("a", ["w"] * 30),
    "true and false": with_column("a", [True] * 30),
    "NaN": with_column("b", [np.nan] + [1.0] * 29),
    "a gap": with_column("b", [None] + [1.0] * 29),
    "a label is missing": with_column("t", [None] + [1] * 29),
    "no labels": lambda table: table.drop_columns(["t"]),
}
TAKEN = {
    "another order": lambda table: table.select(["t", "d", "c", "b", "a"]),
    "empty": lambda table: table.slice(0, 0),
    "float32": lambda table: with_column("a", np.asarray(table["a"]).astype(np.float32))(table),
    "a class that comes late": with_column("t", [9] * 30),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_folder_with_one_odd_file(tmp_path, kind):
    for name, change in REFUSED.items():
        with pytest.raises(KwayError):
            MODELS["sampled"]().fit_folder(folder_of(tmp_path / name, kind, change), "t")
    for name, change in TAKEN.items():
        model = MODELS["sampled"]().fit_folder(folder_of(tmp_path / name, kind, change), "t")
        assert model.score(X[:210], Y[:210]) > 0.9, name
        assert (9 in model.classes_) == (name == "a class that comes late")


@pytest.mark.filterwarnings("ignore")
def test_a_folder_of_arrays_with_one_odd_part(tmp_path):
    def saved(name, part, labels):
        (tmp_path / name).mkdir()
        for i, rows in enumerate([X[:100], part, X[200:]]):
            np.save(tmp_path / name / f"x{i}.npy", rows)
        np.save(tmp_path / name / "y.npy", labels)
        return tmp_path / name

    fewer = np.concatenate([Y[:100], Y[200:]])
    bent = np.where(X[100:200] == X[150, 2], np.nan, X[100:200])
    for name, part, labels in (
        ("narrow", X[100:200, :3], Y),
        ("short", X[100:200], Y[:-1]),
        ("nan", bent, Y),
        ("extra", X[100:200], np.append(Y, 1)),
    ):
        with pytest.raises(KwayError):
            MODELS["sampled"]().fit_folder(saved(name, part, labels))
    for name, part, labels in (("empty", X[:0], fewer), ("float32", X[100:200].astype(np.float32), Y)):
        assert MODELS["sampled"]().fit_folder(saved(name, part, labels)).score(X, Y) > 0.9
    for nowhere in (5, None, str(tmp_path / "nowhere")):
        with pytest.raises(KwayError):
            MODELS["sampled"]().fit_folder(nowhere)

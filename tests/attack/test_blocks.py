"""Blocks of rows as no caller should give them, to every `fit_blocks`: a sentence, or what all rows together teach."""

import numpy as np
import pytest
import scipy.sparse as sp

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
    "labels of two axes": (x, y[:, None]),
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

"""Model files written by earlier versions, one of every kind: still read, still giving the answers they gave then."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import kway
import kway.store

NAMES = {name for name in kway.__all__ if name.endswith("Classifier")}
FILES = sorted((Path(__file__).parent / "golden").glob("*/*.kway"))


def queries(answers):
    if "data" in answers:
        return sp.csr_matrix(tuple(answers[key] for key in ("data", "indices", "indptr")), shape=answers["shape"])
    return json.loads(str(answers["table"])) if "table" in answers else answers["queries"]


def test_there_are_files_of_every_kind():
    kinds = {kway.store.info(path).class_name for path in FILES}
    assert kinds >= NAMES


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_reads_and_answers_as_then(path):
    answers = np.load(path.with_suffix(".npz"))
    Q, model = queries(answers), kway.load(path, verify=True)
    np.testing.assert_array_equal(model.predict(Q), answers["labels"])
    best = model.predict_topk(Q, 3)
    known = np.isfinite(answers["topk_scores"])  # 0.1.0 filled up with the first class at -inf where K < 3
    np.testing.assert_array_equal(best.ids[known], answers["topk_labels"][known])
    np.testing.assert_allclose(best.scores[known], answers["topk_scores"][known], rtol=1e-5, atol=1e-6)

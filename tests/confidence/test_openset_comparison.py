import numpy as np
import pytest

import kway
from kway.confidence.impostors import openset_table, table_text
from kway.errors import InputError
from kway.tables.datasets.catalog import folder


def test_the_table_is_what_the_classifier_does(rng, blobs):
    X, y = blobs(rng, 3000, n_classes=5, d=5)
    y = np.array(["a", "b", "c", "d", "out"])[y]
    parts = [(X[i::3], y[i::3]) for i in range(3)]
    rows = openset_table(kway.SoftmaxClassifier(), *parts, unknown="out", rates=(0.05, 0.1))
    assert [(row.score, row.rate) for row in rows[:4]] == [
        ("max-probability", 0.05), ("max-probability", 0.1), ("energy", 0.05), ("energy", 0.1),
    ]  # fmt: skip
    both = [(np.vstack([parts[0][0], parts[1][0]])), np.concatenate([parts[0][1], parts[1][1]])]
    split = [(np.arange(1000), np.arange(1000, 2000))]
    X_test, y_test = parts[2]
    for row in rows:
        model = kway.OpenSetClassifier(
            unknown="out", score_by=row.score, false_rejects=row.rate, cv=split, class_groups=0
        )
        answers = model.fit(*both).predict(X_test)
        known = y_test != "out"
        assert row.false_rejects == (answers[known] == "out").mean()
        assert row.false_accepts == (answers[~known] != "out").mean()
        assert row.accuracy == (answers[known] == y_test[known]).mean()
        assert row.chosen == (row.auroc_held == max(r.auroc_held for r in rows))
    lines = table_text(rows).splitlines()
    assert len(lines) == len(rows) + 1
    assert sum("chosen" in line for line in lines) == 2
    with pytest.raises(InputError, match="rows labelled 'nobody'"):
        openset_table(kway.SoftmaxClassifier(), *parts, unknown="nobody")


@pytest.mark.slow
def test_out_of_scope_texts_of_clinc150():
    """The false rejects promised on validation rows are kept on test rows, and the best score is chosen by them."""
    place = folder()
    if place is None:
        pytest.skip("set KWAY_DATA")
    with np.load(place / "clinc150_minilm.npz") as data:
        X, y, split = data["x"].astype(np.float32), data["label_names"][data["y"]], data["split"]
    parts = [(X[split == part], y[split == part]) for part in ("train", "val", "test")]
    rows = openset_table(kway.SoftmaxClassifier(alpha=1e-5), *parts, unknown="oos")
    assert {row.score for row in rows} == {"max-probability", "energy", "margin", "distance", "joint"}
    for row in rows:
        # 3,000 held out, 4,500 tested: three standard errors of the difference
        assert row.false_rejects < row.rate + 3 * np.sqrt(row.rate * (1 / 3000 + 1 / 4500)), table_text(rows)
    best = [row for row in rows if row.chosen]
    assert {row.auroc for row in best} == {max(row.auroc for row in rows)}
    assert best[0].auroc > 0.97
    assert best[1].false_accepts < 0.15
    assert best[1].accuracy > 0.91

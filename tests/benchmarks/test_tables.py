"""The table of rivals: differences per row are pooled over splits as one array would give; a file per table is kept."""

import json

import numpy as np
import pytest

from benchmarks import tables


def scores(rng, n, accuracy, loss):
    return tables.PerRow(rng.random(n) < accuracy, None if loss is None else rng.exponential(loss, n))


@pytest.fixture
def done():
    rng, splits, rows = np.random.default_rng(0), {}, []
    for split, n in enumerate((40, 55, 70)):
        every = {name: scores(rng, n, 0.9 - 0.02 * i, None if name == "SVM" else 0.3 + 0.05 * i)
                 for i, name in enumerate(tables.CONTESTANTS)}  # fmt: skip
        rows.append(every)
        splits[str(split)] = {
            name: {
                "rows": n, "accuracy": float(own.correct.mean()), "cpu_seconds": 1.0, "wall_seconds": 1.0, "remark": "",
                "log_loss": None if own.loss is None else float(own.loss.mean()),
                **tables._differences(every["kway"], own),
            }
            for name, own in every.items()
        }  # fmt: skip
    return {"table": "made", "rows": 220, "columns": 3, "classes": 2, "splits": splits}, rows


def test_pooled_differences_are_those_of_all_rows_at_once(done):
    record, rows = done
    gaps = np.concatenate([each["kway"].correct.astype(float) - each["LightGBM"].correct for each in rows])
    found = tables.pooled(list(record["splits"].values()), "LightGBM", "ahead")
    assert found.mean == pytest.approx(gaps.mean())
    assert found.error == pytest.approx(gaps.std(ddof=1) / np.sqrt(len(gaps)))
    lower = np.concatenate([each["LightGBM"].loss - each["kway"].loss for each in rows])
    assert tables.pooled(list(record["splits"].values()), "LightGBM", "lower").mean == pytest.approx(lower.mean())
    assert tables.pooled(list(record["splits"].values()), "SVM", "lower") is None


def test_the_summary_joins_the_files_of_all_tables(done, tmp_path):
    record, _ = done
    (tmp_path / "tables").mkdir()
    for name in ("a", "b"):
        (tmp_path / "tables" / f"{name}.json").write_text(json.dumps({**record, "table": name}))
    summary = tables.summarize(tmp_path / "tables", tmp_path / "tables.json")
    assert summary["tables"] == 2
    assert summary["means"]["SVM"]["log_loss"] is None
    line = json.loads((tmp_path / "tables.json").read_text())["tables"][0]
    best = max((name for name in tables.CONTESTANTS if name != "kway"), key=lambda who: line["means"][who]["accuracy"])
    assert line["best_rival"] == best
    assert line["within_one_error"] == (line["ahead"] >= -line["ahead_error"])


def test_rows_are_scored_one_by_one():
    p = np.array([[0.2, 0.8], [1.0, 0.0], [0.5, 0.5]])
    found = tables.Predictions(np.array(["b", "a", "a"]), p, np.array(["a", "b"]))
    own = tables.per_row(found, np.array(["b", "b", "a"]))
    np.testing.assert_array_equal(own.correct, [True, False, True])
    np.testing.assert_allclose(own.loss, -np.log([0.8, 1e-6 / (1 + 1e-6), 0.5]), rtol=1e-5)

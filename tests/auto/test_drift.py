"""Drift: false alarms as often as stated, shifted columns named, tests as in scipy, and no row in the summary."""

import json

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import chi2_contingency

import kway
from kway.auto.drift import (
    CONFIDENCE,
    LABEL,
    DriftCounts,
    as_note,
    chi_squared,
    holm,
    largest_change,
    stored_summary,
    summarize,
    summarize_predictions,
)
from kway.errors import InputError


def table(rng, n, shift=0.0):
    """Numbers, a column with gaps, levels of which some are rare, texts and days; `shift` moves one of the numbers."""
    gaps = np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n))
    return pa.table({
        "size": rng.normal(size=n) + shift,
        "price": rng.exponential(size=n),
        "rooms": rng.integers(0, 6, n).astype(float),
        "color": rng.choice(["red", "green", "blue", "pink"], n, p=[0.6, 0.25, 0.13, 0.02]),
        "gaps": pa.array(gaps, from_pandas=True),
        "day": pa.array(rng.integers(0, 3000, n), pa.int32()).cast(pa.date32()),
    })  # fmt: skip


def compare(before, after):
    counts = DriftCounts(summarize(before))
    counts.add(after)
    return counts.drift()


@pytest.mark.parametrize(("n", "m"), [(1000, 300), (300, 1000), (100, 50)])
def test_false_alarms_are_as_rare_as_stated(n, m):
    """Of 150 pairs of samples of the same distribution, about 5% are named: at most 10%, 3.4 standard errors more."""
    alarms = [bool(compare(table(rng, n), table(rng, m)).drifted) for rng in map(np.random.default_rng, range(150))]
    assert np.mean(alarms) <= 0.11


def test_a_shifted_column_is_named():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        found = compare(table(rng, 500), table(rng, 200, shift=0.6))
        assert found.columns[0].name == "size"
        assert found.drifted[0].moved > 0.15
    assert "size" in str(found)
    rng = np.random.default_rng(0)
    before, after = table(rng, 500), table(rng, 300)
    unseen = after.set_column(3, "color", pa.array(rng.choice(["red", "gold"], 300)))
    worst = compare(before, unseen).columns[0]
    assert worst.name == "color"
    assert worst.after[worst.bins.index("others")] > 0.3
    empty = after.set_column(0, "size", pa.nulls(300, pa.float64()))
    assert compare(before, empty).columns[0].after[-1] == 1.0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (pa.time32("s"), pa.time64("ns")),
        (pa.timestamp("s"), pa.timestamp("ns")),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.date64()),
        (pa.date32(), pa.timestamp("ns")),
    ],
)
def test_dates_and_times_are_equal_in_every_unit(before, after):
    """A time of day ended with an error, and timestamps were counted in the unit of their type."""
    seconds = np.random.default_rng(0).integers(0, 86400, 300)
    is_time = pa.types.is_time(before)
    moments = (
        pa.array(seconds, pa.int32()).cast("time32[s]") if is_time else pa.array(seconds * 86400, pa.timestamp("s"))
    )
    rows, same = (pa.table({"t": moments.cast(kind)}) for kind in (before, after))
    assert compare(rows, same).columns[0].moved == 0
    assert compare(rows, same.filter(pa.array(seconds > 60000))).drifted


def test_a_frequent_value_has_a_bin_of_its_own():
    """Of such columns, all values were in one bin, so no drift was found."""
    rng = np.random.default_rng(0)
    some = rng.integers(1, 9, 300)
    few = (np.arange(300) < 15) * 1
    sentinel = np.append(rng.normal(size=299), 999999999)
    middle = np.where(np.arange(300) < 200, 0, rng.normal(size=300))
    changes = {
        "mostly zeros": (np.where(rng.random(300) < 0.92, 0, some), some, "0: 9"),
        "constant": (np.zeros(300), np.full(300, 5), "0: 100.0% to 0.0%"),
        "0/1": (few, np.ones(300), "0: 95.0% to 0.0%"),
        "sentinel": (sentinel, rng.normal(size=300) / 9, ""),
        "zeros among others": (middle, rng.normal(size=300), "0: 6"),
        "fraction": (np.full(300, 1 / 3), np.full(300, 0.3333), "below 0.3333: 0.0% to 100.0%"),
    }
    for name, (before, after, change) in changes.items():
        found = compare(pa.table({name: before}), pa.table({name: after}))
        assert [column.name for column in found.drifted] == [name]
        assert largest_change(found.columns[0]).startswith(change)
        assert not compare(pa.table({name: before}), pa.table({name: before[::2]})).drifted
    above = compare(pa.table({"x": np.zeros(300)}), pa.table({"x": np.repeat([0, 5], 150)})).columns[0]
    assert above.bins == ["0", "above 0"]


def test_blocks_add_up():
    rng = np.random.default_rng(1)
    before, after = table(rng, 300), table(rng, 200)
    counts = DriftCounts(summarize(before))
    for start in range(0, 200, 70):
        counts.add(after.slice(start, 70))
    assert counts.drift().record() == compare(before, after).record()


def test_the_test_is_that_of_scipy():
    rng = np.random.default_rng(0)
    for _ in range(20):
        before, after = rng.integers(20, 60, 6), rng.integers(20, 60, 6)
        if after.sum() < before.sum():
            expected = chi2_contingency([before, after], correction=False).pvalue
            assert chi_squared(before, after) == pytest.approx(expected)
    replaced = np.array([[480, 360, 240, 120, 0, 0], [320, 240, 160, 0, 80, 0]])  # a level left, another came
    assert chi_squared(*replaced) == pytest.approx(chi2_contingency(replaced[:, :5], correction=False).pvalue)
    merged = chi2_contingency([[50, 53], [30, 20]], correction=False).pvalue
    assert chi_squared(np.array([50, 50, 2, 1]), np.array([30, 10, 4, 6])) == pytest.approx(merged)


def test_holm_by_its_definition():
    p = np.random.default_rng(0).random(12) ** 3
    order = np.argsort(p)
    for level in (0.01, 0.05, 0.2):
        rejected = set()
        for step, i in enumerate(order):
            if p[i] > level / (12 - step):
                break
            rejected.add(int(i))
        assert set(np.flatnonzero(holm(p) <= level).tolist()) == rejected


def test_the_summary_is_small_and_has_no_rare_value():
    rng = np.random.default_rng(0)
    rows = table(rng, 2000).append_column("name", pa.array([f"person {i}" for i in range(2000)]))
    rows = rows.append_column("city", pa.array(["Paris"] * 1995 + ["Nowhere"] * 5))
    text = json.dumps(as_note(summarize(rows)))
    assert len(text) < 8000
    assert "person" not in text
    assert "Nowhere" not in text
    assert "Paris" in text
    wide = summarize(rng.normal(size=(500, 300)) * np.arange(300))
    assert len(wide) == 40
    assert {column.name for column in wide} >= {"x299", "x290"}


def test_outputs_of_the_model_are_compared():
    rng = np.random.default_rng(0)
    before = summarize_predictions(rng.choice(["a", "b"], 400), rng.uniform(0.8, 1, 400))
    counts = DriftCounts(before)
    counts.add(np.zeros((300, 1)), rng.choice(["a", "b"], 300), rng.uniform(0.5, 1, 300))
    assert [column.name for column in counts.drift().drifted] == [CONFIDENCE]
    rejecting = DriftCounts(summarize_predictions(np.repeat([0, 1, -1], [100, 90, 10]), None, -1), -1)
    rejecting.add(np.zeros((200, 1)), np.repeat([0, 1, -1], [80, 70, 50]))
    found = {column.name: column for column in rejecting.drift().columns}
    assert found["(unknown)"].adjusted < 0.001
    assert found[LABEL].adjusted > 0.5


def test_from_a_file_and_from_a_result(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = (X[:, 0] > 0).astype(int)
    fitted = kway.fit(X, y, models=["softmax"], alpha=1e-2)
    fitted.save(tmp_path / "m.kway")
    new = rng.normal([0, 0, 1], size=(300, 3))
    for model in (fitted, tmp_path / "m.kway", str(tmp_path / "m.kway")):
        found = kway.drift(model, new)
        assert "x2" in [column.name for column in found.drifted]
        assert "x1" not in [column.name for column in found.drifted]
        assert {CONFIDENCE, LABEL} <= {column.name for column in found.columns}
    kway.SoftmaxClassifier().fit(X, y).save(tmp_path / "plain.kway")
    with pytest.raises(InputError, match="has no summary of its training rows"):
        kway.drift(tmp_path / "plain.kway", new)
    with pytest.raises(InputError, match="must be a model file"):
        kway.drift(fitted.model, new)
    with pytest.raises(InputError, match="has no summary"):
        stored_summary({"summary": [{"name": "x", "kind": "number", "edges": [1.0], "levels": [], "counts": [1]}]}, "m")

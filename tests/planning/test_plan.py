"""The plan: exact arithmetic where there is some, loose figures where data decide, refusals before memory is gone."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest

import kway
from kway import units
from kway.errors import BudgetError, InputError
from kway.planning import Rates, costs
from kway.planning.costs import COSTS, Size, gpu_softmax, judge_gpu
from kway.planning.plan import ADVICE, COLUMNS

RATES = Rates()


def planned(*size, **options):
    return kway.plan(*size, **{"rates": RATES, "memory": "24GB"} | options)


@pytest.mark.parametrize(("classes", "shown"), [(10, "10K"), (1000, "1M"), (1_000_000, "1G"), (1_000_000_000, "1T")])
def test_the_table_of_the_lecture(classes, shown):
    way = planned(max(10_000, classes), 1000, classes)["softmax"]
    assert way.parameters == classes * 1001
    assert units.format_count(way.parameters) == shown
    assert way.disk_bytes == 4 * classes * 1001 + 8 * classes


def test_two_classes_share_one_score():
    assert planned(100, 7, 2)["softmax"].parameters == 8


def test_bytes_of_what_is_kept():
    found = planned(1000, 64, 10)
    assert found["kNN flat"].disk_bytes == 1000 * 64 * 4 + 8 * (1000 + 20)
    assert found["kNN bytes"].disk_bytes == 1000 * 68 + 8 * (1000 + 20)
    assert found["kNN bits"].disk_bytes == 1000 * (64 // 8 + 2) + 8 * (1000 + 20)
    assert planned(1000, 64, 10, dtype="float64")["kNN flat"].disk_bytes == 1000 * 64 * 8 + 8 * (1000 + 20)
    sparse = planned(1000, 500, 10, density=0.01)
    assert sparse.size.rows_bytes == 5000 * 8 + 4000
    assert "dense" in sparse["kNN landmarks"].missing


def test_costs_grow_with_every_size():
    one = planned(20_000, 200, 20)
    for bigger in (planned(80_000, 200, 20), planned(20_000, 800, 20), planned(20_000, 200, 80)):
        for way in one.ways:
            for cost in ("fit_bytes", "model_bytes", "disk_bytes", "operations", "fit_seconds", "predict_seconds"):
                assert getattr(bigger[way.name], cost) >= getattr(way, cost), (way.name, cost)


def test_a_model_file_is_as_large_as_planned(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3000, 100), dtype=np.float32), np.arange(3000) % 300
    found = planned(3000, 100, 300)
    for name, model in {
        "softmax": kway.SoftmaxClassifier(alpha=1.0),
        "kNN flat": kway.NeighborsClassifier(),
    }.items():
        model.fit(X, y).save(tmp_path / "model.kway")
        assert (tmp_path / "model.kway").stat().st_size == pytest.approx(found[name].disk_bytes, rel=0.1)


def test_the_advice():
    assert planned(60_000, 784, 10).advised.name == "softmax"
    many = planned(2e6, 256, 1e6)
    assert many.advised.name in ADVICE[1:]
    assert many.fits(many.advised)
    assert not many.fits(many["softmax"])
    huge = planned(1e9, 512, 1e9)
    assert huge.advised is None
    assert huge.advice().startswith("Nothing fits")
    assert not any(record["fits"] for record in huge.records())


def test_machines_share_the_rows():
    one, ten = (planned(1e8, 512, 1e6, machines=m).ways[-1] for m in (1, 10))
    assert ten.fit_bytes == pytest.approx(one.fit_bytes / 10, rel=0.01)
    assert ten.name == "kNN 10 machines"
    assert "machines" in one.quality


GPU = {"gpu": 7e14, "gpu_memory": 140e9}


def test_a_gpu_only_where_there_is_one():
    assert not [way.name for way in planned(100, 10, 3).ways if "GPU" in way.name]
    found = planned(100, 10, 3, rates={"gpu": 5e14})
    assert found["softmax, GPU"].fit_seconds > 0
    assert len([way for way in found.ways if "GPU" in way.name]) == 3


def test_a_gpu_has_memory_of_its_own():
    small, large = (planned(2e6, 1024, 1e6, memory="1TB", rates=GPU | {"gpu_memory": m}) for m in (4e9, 140e9))
    for name in ("softmax, GPU", "sampled softmax, GPU", "kNN flat, GPU"):
        way = large[name]
        assert way.device_bytes >= 4 * 2e6 * 1024  # the rows
        assert large.fits(way)
        assert not small.fits(way)
        assert "on the GPU" in way.quality
    assert large["sampled softmax, GPU"].device_bytes < large["softmax, GPU"].device_bytes
    assert large["softmax, GPU"].fit_seconds < large["softmax"].fit_seconds / 100
    assert "GPU" in large.advised.name
    assert all(way.device_bytes == 0 for way in large.ways if "GPU" not in way.name)


def test_g1_as_it_was_measured():
    way = planned(1e7, 128, 10, memory="1TB", rates=GPU)["kNN flat, GPU"]
    assert 10_000 * way.predict_seconds == pytest.approx(0.027, rel=0.3)  # benchmarks/results/gpu_search.json
    assert way.device_bytes == pytest.approx(7.9e9, rel=0.1)


def test_whether_a_gpu_pays_is_told_with_the_plans_figures():
    rates, room = Rates(**GPU), 10**11
    tiny, large = Size(100, 10, 3), Size(10**6, 512, 1000)
    assert judge_gpu(tiny, rates, gpu_softmax, room) == (False, judge_gpu(tiny, rates, gpu_softmax, room).why)
    assert "too small" in judge_gpu(tiny, rates, gpu_softmax, room).why
    pays, why = judge_gpu(large, rates, gpu_softmax, room)
    assert pays
    assert "on the CPU" in why
    pays, why = judge_gpu(large, rates, gpu_softmax, 10**6)
    assert not pays
    assert "on the GPU" in why
    assert not judge_gpu(replace(large, density=0.1), rates, gpu_softmax, room).pays


def test_the_table_and_the_json():
    found = planned(1e9, 512, 1e9)
    lines = str(found).splitlines()
    assert max(map(len, lines[:-1])) <= 80
    assert lines[1].split()[:2] == ["approach", "params"]
    facts = json.loads(found.to_json())
    assert facts["n_samples"] == 10**9
    assert len(facts["ways"]) == len(COSTS) + 1
    assert all(len(row) == len(COLUMNS) for row in found.rows())


@pytest.mark.parametrize(
    ("size", "options", "match"),
    [
        ((10, 5, 20), {}, "at most n_samples"),
        ((10.5, 5, 2), {}, "n_samples must be a whole number"),
        ((10, 0, 2), {}, "n_features"),
        (("a", 5, 2), {}, "n_samples must be a whole number"),
        ((None, 5, 2), {}, "n_samples must be a whole number"),
        ((10**400, 5, 2), {}, "below 1e18"),
        ((10, 5, 2), {"density": "all"}, "density"),
        ((10, 5, 1), {}, "n_classes"),
        ((10, 5, float("nan")), {}, "n_classes"),
        ((10, 5, 2), {"density": 0}, "density"),
        ((10, 5, 2), {"dtype": "int8"}, "dtype"),
        ((10, 5, 2), {"dtype": "nonsense"}, "dtype"),
        ((10, 5, 2), {"memory": "lots"}, "memory"),
        ((10, 5, 2), {"machines": 0}, "machines"),
        ((10, 5, 2), {"rates": {"product": -1}}, "rates"),
        ((10, 5, 2), {"rates": {"unheard": 1}}, "rates"),
    ],
)
def test_what_means_nothing_is_refused(size, options, match):
    with pytest.raises(InputError, match=match):
        planned(*size, **options)


# ---- what fit asks


def test_a_fit_that_cannot_end_is_refused_at_once(monkeypatch):
    monkeypatch.setenv("KWAY_MEMORY", "500MB")
    X, y = np.zeros((40_000, 500), np.float32), np.arange(40_000) // 4
    started = time.process_time()
    with pytest.raises(BudgetError, match=r"40,000 rows .* only 477 MiB is available\. Use .* fits") as told:
        kway.SoftmaxClassifier(solver="lbfgs").fit(X, y)
    assert time.process_time() - started < 20  # the fit itself would take minutes
    assert "kway.plan(40000, 500, 10000)" in str(told.value)


def test_neighbors_are_refused_too(monkeypatch):
    monkeypatch.setenv("KWAY_MEMORY", "50MB")
    X = np.zeros((500_000, 128), np.float32)
    with pytest.raises(BudgetError, match="NeighborsClassifier on 500,000 rows"):
        kway.NeighborsClassifier().fit(X, np.arange(500_000) % 3)


def test_small_fits_do_not_read_the_memory(monkeypatch):
    monkeypatch.delenv("KWAY_MEMORY", raising=False)
    monkeypatch.setattr("kway.memory.available_bytes", lambda: pytest.fail("memory was read"))
    for formula in (costs.softmax, costs.flat):
        costs.check_fit("x", formula, Size(10_000, 100, 10))


def test_a_fit_prints_no_estimate_of_its_time(capsys):
    costs.check_fit("SoftmaxClassifier", costs.softmax, Size(10**5, 1000, 1000))
    assert capsys.readouterr() == ("", "")


def test_predictions_that_do_not_fit_are_refused(monkeypatch):
    X, y = np.zeros((2000, 3), np.float32), np.arange(2000) % 1000
    X[:, 0] = y
    model = kway.CentroidClassifier().fit(X, y)
    monkeypatch.setenv("KWAY_MEMORY", "1MB")
    with pytest.raises(BudgetError, match=r"2,000 rows x 1,000 classes needs .* predict_topk"):
        model.decision_function(X)
    assert model.predict_topk(X, 1).ids.shape == (2000, 1)

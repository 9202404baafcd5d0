"""Agreement with exact search: the bound is exact, tuning keeps its confidence, real queries keep the guarantee."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, binomtest

import kway
from kway.errors import InputError
from kway.neighbors import NeighborsClassifier, Target
from kway.neighbors.agreement import (
    QuerySample,
    Trial,
    agreement_lower_bound,
    choose_probes,
    ladder,
    search_all_steps,
    search_at_steps,
    without_self,
)
from kway.search import Bits, Flat, Landmarks

DATA = os.environ.get("KWAY_DATA")


@pytest.mark.parametrize(("right", "n"), [(1497, 1497), (1496, 1497), (3996, 4000), (0, 10), (5, 10)])
def test_the_bound_is_clopper_and_pearsons(right, n):
    bound = agreement_lower_bound(right, n, 0.95)
    low = binomtest(right, n, alternative="greater").proportion_ci(0.95, method="exact").low
    assert bound == pytest.approx(low, abs=1e-10)
    if right:
        assert binom.sf(right - 1, n, bound) == pytest.approx(0.05)


def test_the_default_needs_about_1500_queries_without_a_disagreement():
    need = Target().least_queries
    assert need == 1497
    assert agreement_lower_bound(need, need, 0.95) >= 0.998 > agreement_lower_bound(need - 1, need - 1, 0.95)


class Simulated:
    """Queries each of which agrees from some number of probes on; the true agreement is known."""

    def __init__(self, rng, n, hardness):
        self.n = n
        self.needs = rng.exponential(hardness, n)

    def ask(self, probes):
        return Trial(self.n, int((self.needs > probes).sum()), is_cheap=probes <= 32)


def test_guarantees_are_broken_no_more_often_than_the_confidence_says():
    target = Target(agreement=0.99, confidence=0.9, n_queries=1000, n_pilot=200)
    rng = np.random.default_rng(0)
    broken = made = 0
    for _ in range(600):
        hardness = 2.0
        found = choose_probes(
            ladder(64),
            Simulated(rng, target.n_pilot, hardness).ask,
            Simulated(rng, target.n_queries, hardness).ask,
            target,
        )
        if found.probes is not None:
            made += 1
            broken += np.exp(-found.probes / hardness) > 1 - target.agreement  # P(a new query disagrees)
    assert made > 400  # it does guarantee something
    assert broken <= binom.ppf(0.999, 600, 1 - target.confidence)


def test_probes_go_down_to_the_last_that_passes():
    rng = np.random.default_rng(1)
    sample = Simulated(rng, 1000, 2.0)
    sample.needs[:] = 5.5  # all agree from 6 probes on, none before
    found = choose_probes(ladder(64), Simulated(rng, 200, 2.0).ask, sample.ask, Target(0.99, 0.9))
    assert found.probes == 6


def test_probes_that_cost_more_than_exact_search_are_not_used():
    rng = np.random.default_rng(2)
    found = choose_probes(ladder(64), Simulated(rng, 200, 30.0).ask, Simulated(rng, 1000, 30.0).ask, Target(0.99, 0.9))
    assert found.probes is None
    assert found.disagreements > 0


def test_hashes_that_miss_too_much_give_way_to_exact_search():
    X, y, Q, _ = real_digits()
    model = NeighborsClassifier(index="lsh", agreement=Target(0.99)).fit(X, y)
    exact = NeighborsClassifier(index="flat").fit(X, y)
    assert (model.predict(Q) == exact.predict(Q)).mean() > 0.985
    assert model.agreement_.exact == (model.index_.recipe == kway.search.Flat())


def test_too_few_rows_stay_exact_and_say_so():
    X, y, _, _ = real_digits()
    model = NeighborsClassifier(index=kway.search.Landmarks()).fit(X[:1200], y[:1200])
    assert model.agreement_.exact
    assert "1,497" in str(model.agreement_)
    assert "stays exact" in model.index_.why_
    plain = NeighborsClassifier(index="flat").fit(X[:1200], y[:1200])
    np.testing.assert_array_equal(model.kneighbors(X[1200:1300])[1], plain.kneighbors(X[1200:1300])[1])


@pytest.mark.parametrize("of", ["votes", "recall"])
def test_tuning_on_real_digits(of):
    X, y, Q, _ = real_digits()
    target = Target(agreement=0.99, of=of)
    model = NeighborsClassifier(index="landmarks", agreement=target).fit(X, y)
    made = model.agreement_
    assert not made.exact
    assert made.bound >= 0.99
    assert model.index_.probes == made.probes < model.index_.n_landmarks
    assert f"{made.probes} probes" in str(made)
    exact = NeighborsClassifier(index="flat").fit(X, y)
    if of == "votes":
        assert (model.predict(Q) == exact.predict(Q)).mean() > 0.985
    else:
        ours, theirs = model.kneighbors(Q)[1], exact.kneighbors(Q)[1]
        assert np.mean([np.isin(a, b).mean() for a, b in zip(ours, theirs)]) > 0.985


def test_fewer_probes_are_chosen_for_a_lower_target():
    X, y, _, _ = real_digits()
    probes = [
        NeighborsClassifier(index="landmarks", agreement=Target(agreement=a)).fit(X, y).agreement_.probes
        for a in (0.9, 0.99)
    ]
    assert probes[0] < probes[1]


def test_probes_that_were_given_are_kept_without_tuning():
    X, y, _, _ = real_digits()
    model = NeighborsClassifier(index=kway.search.Landmarks(probes=3)).fit(X, y)
    assert model.agreement_ is None
    assert model.index_.probes == 3


def test_an_index_is_tuned_again_when_the_rows_have_grown(tmp_path):
    X, y, _, _ = real_digits()
    model = NeighborsClassifier(index="landmarks", agreement=Target(0.95, n_pilot=100)).fit(X[:60], y[:60])
    assert model.agreement_.exact  # too few rows to guarantee anything
    model.partial_fit(X[60:2000], y[60:2000])
    first = model.agreement_
    assert not first.exact
    model.partial_fit(X[2000:2100], y[2000:2100])
    assert model.agreement_ is first
    assert model.index_.n_rows == 2100
    model.partial_fit(X[2100:3000], y[2100:3000])
    assert model.agreement_.n_rows == 3000
    model.save(tmp_path / "model.kway")
    assert kway.load(tmp_path / "model.kway").agreement_ == model.agreement_


def test_one_search_answers_as_many_searches_do():
    X, _, _, _ = real_digits()
    X, asked = X[:2000], QuerySample(X[:300], np.arange(300), 5)
    index, steps, some = kway.search.Landmarks().build(X), [1, 3, 12], slice(100, 250)
    truth, find = search_all_steps(index, asked, steps)
    exact = asked.search(kway.search.Flat().build(X))
    np.testing.assert_array_equal(truth.ids, exact.ids)
    for probes in steps:
        np.testing.assert_array_equal(find(probes, some).neighbors.ids, asked.search(index, some, probes).ids)
    assert (truth.ids != np.arange(300)[:, None]).all()


def test_codes_next_to_rows_are_compared_with_exact_search():
    X, _, _, _ = real_digits()
    X, own = X[:2000], np.arange(300)
    asked = QuerySample(X[:300], own, 5)
    index = Landmarks(store=Bits(1)).build(X)  # a search of all cells may miss rows
    truth, find = search_at_steps(index, X, None, asked, [3])
    np.testing.assert_array_equal(truth.ids, without_self(Flat().build(X).nearest(X[:300], 6), own).ids)
    expected = without_self(index.nearest(X[:9], 6, probes=3), own[:9])
    np.testing.assert_array_equal(find(3, slice(9)).neighbors.ids, expected.ids)


class Drawn:
    """Real queries whose agreement at every step is known, drawn from a population."""

    def __init__(self, right, steps, rows):
        self.n, self.right, self.steps = len(rows), right[rows], steps

    def ask(self, probes):
        return Trial(self.n, int((~self.right[:, self.steps.index(probes)]).sum()), is_cheap=True)


def test_guarantees_on_real_digits_hold_by_repetition():
    """400 guarantees on samples of real digits are broken as often as the confidence allows."""
    X, y, _, _ = real_digits()
    X, y = X[:3000], y[:3000]
    model = NeighborsClassifier(index=kway.search.Landmarks(probes=1)).fit(X, y)
    exact = NeighborsClassifier(index="flat").fit(X, y)
    own = np.arange(len(y))
    truth = exact._winners(without_self(exact.index_.nearest(X, 6), own))
    steps = ladder(model.index_.n_landmarks // 2)
    answers = [model._winners(without_self(model.index_.nearest(X, 6, probes=p), own)) for p in steps]
    right = np.column_stack([answer == truth for answer in answers])  # (n, steps)
    population = right.mean(axis=0)
    target, rng = Target(0.985, 0.9), np.random.default_rng(0)
    made = broken = 0
    for _ in range(400):
        rows = rng.permutation(len(y))
        found = choose_probes(
            steps, Drawn(right, steps, rows[:200]).ask, Drawn(right, steps, rows[200:900]).ask, target
        )
        if found.probes is not None:
            made += 1
            broken += population[steps.index(found.probes)] < target.agreement
    assert made > 200
    assert broken <= binom.ppf(0.999, 400, 0.1)


@pytest.mark.parametrize("bad", [{"agreement": 1.0}, {"confidence": 0.0}, {"of": "luck"}])
def test_bad_targets_are_refused(bad):
    with pytest.raises(InputError):
        Target(**bad)


def real_digits():
    data = kway.datasets.digits()
    return tuple(
        np.asarray(a, np.float32) if a.ndim == 2 else a for a in (data.x_train, data.y_train, data.x_test, data.y_test)
    )


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="needs KWAY_DATA")
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_the_default_guarantee_holds_on_unseen_queries(name):
    X, y, Q, _ = full(name)
    exact = NeighborsClassifier(index="flat").fit(X, y)
    truth = exact.predict(Q)
    agreements = []
    for seed in range(3):
        model = NeighborsClassifier(index=kway.search.Landmarks(seed=seed), agreement=Target(seed=seed)).fit(X, y)
        agreements.append((model.predict(Q) == truth).mean())
    assert min(agreements) >= 0.998, agreements


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="needs KWAY_DATA")
def test_mnist_accuracy_by_tie_rule():
    X, y, Q, yq = full("mnist")
    model = NeighborsClassifier(5).fit(X, y)
    assert model.score(Q, yq) == pytest.approx(0.9693, abs=1e-9)
    assert NeighborsClassifier(5, ties="smallest").fit(X, y).score(Q, yq) == pytest.approx(0.9688, abs=1e-9)


def full(name):
    z = np.load(Path(DATA) / f"{name}.npz")
    rows = [z[k].reshape(len(z[k]), -1).astype(np.float32) / 255 for k in ("x_train", "x_test")]
    return rows[0], z["y_train"].astype(int), rows[1], z["y_test"].astype(int)


def test_codes_alone_agree_with_a_search_of_all_cells(tmp_path):
    """Only codes are kept; the agreement is with the vote of a search through all cells."""
    rng = np.random.default_rng(5)
    centers = rng.normal(size=(30, 64)) * 2
    y = rng.integers(0, 30, 9000)
    X = (centers[y] + rng.normal(size=(9000, 64))).astype(np.float32)
    for store in (Bits(2, rerank=False), Bits(1)):
        model = kway.NeighborsClassifier(5, index=Landmarks(n_landmarks=60, store=store)).fit(X[:8000], y[:8000])
        assert isinstance(model.index_.recipe.store, Bits)
        assert model.agreement_.probes < 30
        assert (model.predict(X[8000:]) == y[8000:]).mean() > 0.95
        everywhere = kway.NeighborsClassifier(5, index=Landmarks(n_landmarks=60, probes=60, store=store))
        assert (everywhere.fit(X[:8000], y[:8000]).predict(X[8000:]) == model.predict(X[8000:])).mean() > 0.99
        assert (model._training.blocks is None) == (not store.rerank)
        model.save(tmp_path / "m.kway")
        size = (tmp_path / "m.kway").stat().st_size
        assert (size < X[:8000].nbytes) == (not store.rerank)
        again = kway.load(tmp_path / "m.kway")
        np.testing.assert_array_equal(again.predict(X[8000:]), model.predict(X[8000:]))
        again.partial_fit(X[8000:], y[8000:])
        assert (again.predict(X[8000:]) == y[8000:]).mean() > 0.95


def test_flat_bits_are_tested_if_a_target_is_given(tmp_path):
    X, y, Q, _ = real_digits()
    quick = NeighborsClassifier(index=Flat(store=Bits(1)), agreement=Target(0.99, of="recall")).fit(X, y)
    assert quick.agreement_.bound >= 0.99
    assert isinstance(quick.index_.recipe.store, Bits)
    exact = NeighborsClassifier(index="flat").fit(X, y)
    found, true = quick.kneighbors(Q, return_distance=False), exact.kneighbors(Q, return_distance=False)
    assert np.mean([np.isin(a, b).mean() for a, b in zip(found, true)]) > 0.99
    quick.save(tmp_path / "m.kway")
    assert kway.load(tmp_path / "m.kway").agreement_ == quick.agreement_
    sloppy = NeighborsClassifier(index=Flat(store=Bits(1, miss=0.4)), agreement=Target(0.99, of="recall")).fit(X, y)
    found = sloppy.kneighbors(Q, return_distance=False)
    if sloppy.agreement_.exact:  # bits that lose four in ten cannot keep it, but where the machine reads more of them
        np.testing.assert_array_equal(found, true)
    else:
        assert np.mean([np.isin(a, b).mean() for a, b in zip(found, true)]) > 0.985
    assert NeighborsClassifier(index=Flat(store=Bits(1))).fit(X, y).agreement_ is None

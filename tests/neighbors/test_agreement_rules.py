"""The rules of tuning, one by one: how many queries it takes, which probes are tried, what the result says."""

import numpy as np
import pytest

from kway.errors import InputError
from kway.neighbors import Target, agreement
from kway.neighbors.agreement import (
    Agreement,
    ProbeResult,
    StepResult,
    Trial,
    agreement_lower_bound,
    choose_probes,
    ladder,
    needs_tuning,
    tune,
)
from kway.search import Bits, Flat, Landmarks

SMALL = {"agreement": 0.9, "confidence": 0.9}  # 22 queries without a disagreement


class Told:
    """Queries whose disagreements at a step are given, the last of them from there on; what was asked is kept."""

    def __init__(self, n, wrong, most=10**9):
        self.n, self.wrong, self.most, self.asked = n, wrong, most, []

    def ask(self, probes):
        self.asked.append(probes)
        return Trial(self.n, self.wrong.get(probes, 0), is_cheap=probes <= self.most)


@pytest.mark.parametrize("bad", [{"agreement": 0.0}, {"agreement": 1.0}, {"confidence": 1.0}, {"confidence": 0.0}])
def test_a_share_lies_between_0_and_1(bad):
    with pytest.raises(InputError, match="between 0 and 1"):
        Target(**bad)


def test_the_ladder():
    assert ladder(20) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20]
    assert ladder(16) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16]
    assert ladder(1) == [1]
    assert ladder(2**40)[-4:] == [5 * 2**29, 6 * 2**29, 7 * 2**29, 2**40]


@pytest.mark.parametrize(
    ("wrong", "tried"), [({}, 5), ({1: 5}, 5), ({1: 6}, 6), ({1: 6, 2: 6}, 7), (dict.fromkeys(range(1, 17), 6), 20)]
)
def test_the_sample_starts_four_steps_above_the_first_that_looks_good(wrong, tried):
    """A quarter of the quarter that may disagree, 5 of 80, looks good."""
    pilot, sample = Told(80, wrong), Told(100, {})
    assert choose_probes(ladder(20), pilot.ask, sample.ask, Target(0.75, 0.9)).probes == 1
    assert sample.asked == ladder(20)[ladder(20).index(tried) :: -1]


def test_a_pilot_that_never_looks_good_is_the_evidence():
    pilot, sample = Told(80, dict.fromkeys(range(1, 21), 9)), Told(100, {})
    assert choose_probes(ladder(20), pilot.ask, sample.ask, Target(**SMALL)) == ProbeResult(80, 9, 0.0, None)
    dear = Told(80, {1: 9, 2: 7}, most=1)
    assert choose_probes(ladder(20), dear.ask, sample.ask, Target(**SMALL)) == ProbeResult(80, 7, 0.0, None)
    assert sample.asked == []


@pytest.mark.parametrize(("wrong", "most", "probes"), [(4, 4, None), (3, 4, 4), (3, 3, None), (2, 2, None)])
def test_a_step_that_costs_more_than_a_full_scan_is_not_used(wrong, most, probes):
    """The tests start above the pilot's step, where a step may pass and cost more than a full scan."""
    pilot, sample = Told(80, {}), Told(100, {wrong: 90}, most=most)
    found = choose_probes(ladder(20), pilot.ask, sample.ask, Target(0.75, 0.9))
    assert found.probes == probes
    assert sample.asked == list(range(5, wrong - 1, -1))


@pytest.mark.parametrize("bad", [{"n_pilot": 0}, {"n_queries": 0}, {"n_pilot": -1}, {"seed": -1}, {"n_queries": 1.5}])
def test_numbers_of_queries_are_whole_and_positive(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        Target(**bad)


def test_a_bound_that_is_the_target_keeps_it():
    reached = agreement_lower_bound(97, 100, 0.9)
    target = Target(reached, 0.9)
    found = choose_probes([5], Told(100, {}).ask, Told(100, {5: 3}).ask, target)
    assert found == ProbeResult(100, 3, reached, 5)
    assert choose_probes([5], Told(100, {}).ask, Told(100, {5: 4}).ask, target).probes is None
    assert agreement_lower_bound(0, 100, 0.9) == 0


@pytest.mark.parametrize(
    ("n", "settings", "expected"),
    [
        (22, {}, (21, None)),  # one row is needed for the pilot
        (23, {}, (22, 1)),
        (4, {"agreement": 0.5, "confidence": 0.6}, (3, 1)),  # 2 queries are enough, and a fifth of 4 is less than 1
        (3, {"agreement": 0.5, "confidence": 0.6}, (2, 1)),
        (2, {"agreement": 0.5, "confidence": 0.6}, (1, None)),
        (200, {}, (160, 40)),  # a fifth
        (200, {"n_pilot": 30, "n_queries": 50}, (50, 30)),
        (100, {"n_queries": 10}, (10, None)),  # fewer may be asked than it takes
    ],
)
def test_how_many_are_asked(monkeypatch, n, settings, expected):
    rows, seen = np.random.default_rng(0).normal(size=(n, 2)).astype(np.float32), {}

    def answers(index, rows, ids, asked, steps):
        seen.update(asked=asked)
        return None, lambda probes, some: StepResult(None, 0.0)

    def searched(steps, pilot, sample, target):
        seen.update(pilot=pilot(1).n, sample=sample(1).n)
        return ProbeResult(sample(1).n, 0, 0.95, 1)

    monkeypatch.setattr(agreement, "search_at_steps", answers)
    monkeypatch.setattr(
        agreement, "compare_with", lambda *_: lambda found, some: np.ones(some.stop - some.start, dtype=bool)
    )
    monkeypatch.setattr(agreement, "choose_probes", searched)
    index = Landmarks(n_landmarks=4).build(rows)
    made = tune(index, rows, np.arange(n) + 1000, 3, None, Target(**SMALL | settings))
    n_queries, n_pilot = expected
    assert (made.agreement.n_queries, made.agreement.n_rows) == (n_queries, n)
    if n_pilot is None:
        assert not seen
        assert made.agreement.exact
        assert (made.agreement.disagreements, made.agreement.bound) == (0, 0)
        assert f"{n_queries} queries are too few" in str(made.agreement)
        assert isinstance(made.index.recipe, Flat)
    else:
        assert (seen["pilot"], seen["sample"]) == (n_pilot, n_queries)
        assert made.index is index
        np.testing.assert_array_equal(rows[seen["asked"].self_ids - 1000], seen["asked"].queries)


def test_which_indexes_are_tuned():
    asked = Target()
    assert not needs_tuning(Flat(), asked)
    assert needs_tuning(Landmarks(), None)
    assert not needs_tuning(Landmarks(probes=3), asked)
    assert needs_tuning(Flat(store=Bits()), asked)
    assert not needs_tuning(Flat(store=Bits()), None)
    assert not needs_tuning(Flat(store=Bits(rerank=False)), asked)


def test_what_it_says():
    kept = Agreement(0.9, 0.95, "votes", 200, 5, 0.94, 1, 1000)
    assert kept.observed == 0.975
    assert np.isnan(Agreement(0.9, 0.95, "votes", 0, 0, 0.0, None, 10).observed)
    assert str(kept) == (
        "votes as exact search does on at least 90.00% of queries at 95% confidence: 195 of 200 held-out queries "
        "agreed with 1 probe (lower bound 94.000%)"
    )
    assert "finds a true neighbor" in str(Agreement(0.9, 0.95, "recall", 200, 5, 0.94, 2, 1000))
    assert "with 2 probes" in str(Agreement(0.9, 0.95, "recall", 200, 5, 0.94, 2, 1000))
    need = Target(0.9, 0.95).least_queries
    assert "are too few (at least 29 " in str(Agreement(0.9, 0.95, "votes", need - 1, 0, 0.0, None, 40))
    assert "a full scan is cheaper" in str(Agreement(0.9, 0.95, "votes", need, 0, 0.0, None, 40))
    assert "3 of 200 held-out queries disagreed" in str(Agreement(0.9, 0.95, "votes", 200, 3, 0.0, None, 400))


def test_without_full_rows_exact_search_is_that_of_all_codes():
    """The exact index of codes is no search of full rows, and its sentence says so."""
    rows = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    store = Bits(4, rerank=False)
    tuned = tune(Landmarks(n_landmarks=4, store=store).build(rows), rows, None, 3, None, Target())
    assert tuned.agreement.exact
    assert tuned.index.recipe == Flat(store=store)
    assert tuned.index.why_.startswith("Flat over all codes: stays exact: 59 queries are too few")
    assert tune(Landmarks(n_landmarks=4).build(rows), rows, None, 3, None, Target()).index.why_.startswith(
        "Flat: stays"
    )

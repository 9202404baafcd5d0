"""What tests of several folders share."""

import time

import pytest


@pytest.fixture
def slept(monkeypatch):
    """A clock that time.sleep alone moves on: what is measured does not depend on who else uses the machine."""
    now = [1000.0]

    def sleep(seconds):
        now[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])


@pytest.fixture
def few_trees(monkeypatch):
    """Trees by default learn a few rounds: a race learns hundreds per fold, most of the time of a job on a few rows."""
    from kway.auto.race.families import FAMILIES
    from kway.trees import classifier

    monkeypatch.setattr(classifier, "_BOOSTED_TREES", 10)
    monkeypatch.setattr(classifier, "_EXTRA_TREES", 30)
    monkeypatch.setitem(FAMILIES["boosted-gentle"].params, "n_trees", 20)

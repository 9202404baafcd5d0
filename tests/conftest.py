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

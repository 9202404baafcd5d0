"""Rows and labels of every kind, for a few models; all of them where slow tests run."""

import pytest
from odd_kinds import ALL_MODELS, LABELS, ROWS, run


@pytest.mark.parametrize(
    "names", [("softmax", "flat", "mapped", "open set"), pytest.param(ALL_MODELS, marks=pytest.mark.slow)]
)
def test_every_end_is_an_answer_or_a_sentence(names):
    counts, bad = run(names)
    assert not bad, "\n".join(bad)
    assert counts["answered"] + counts["refused"] == len(names) * (len(ROWS) + len(LABELS))
    assert counts["answered"] > 40 * len(names)

"""A short campaign against model files, the same every time; the long one is `make attack`."""

import pytest
from file_attack.campaign import run

pytestmark = pytest.mark.filterwarnings("ignore")


def check(counts, least):
    assert not counts.bad, "\n".join(map(str, counts.bad))
    total = counts.total
    assert sum(total.values()) >= least
    assert total["refused"] > total["answered"] > 0  # the changes reach both what is checked and what is not


def test_altered_files_are_refused_or_answer(tmp_path):
    check(run(600, seed=7, seconds=45, keep=tmp_path / "bad"), least=50)


@pytest.mark.slow
def test_kernels_stay_within_their_arrays(tmp_path):
    """The same with numba's bounds checks on: an index that leaves its array is then an error, not a silent read."""
    check(run(5000, seed=8, seconds=300, bounds=True, keep=tmp_path / "bad"), least=500)

"""Jobs on a few rows."""

import pytest


@pytest.fixture(autouse=True)
def quick_trees(few_trees):
    """Every race of this folder has small forests."""

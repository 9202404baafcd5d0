"""Models by the names that the command line uses."""

from __future__ import annotations

from kway.data.suggest import listing, nearest
from kway.errors import UsageError

# Written out so that --help need not load the families; tests hold it equal to theirs.
MODELS = (
    "softmax",
    "neighbors",
    "neighbors-cosine",
    "neighbors-manhattan",
    "neighbors-learned",
    "centroid",
    "least-squares",
    "logistic",
    "perceptron",
    "svm",
    "svm-one-vs-all",
    "svm-rounded",
    "naive-bayes",
    "least-squares-number",
)
ALL_COLUMNS = "all"  # every family


def pick_models(name: str) -> list[str] | None:
    """The names that `name` stands for: itself, several with commas between, or None for every one."""
    if name == ALL_COLUMNS:
        return None
    names = [part.strip() for part in name.split(",")]
    for part in names:
        if part not in MODELS:
            raise UsageError(f"no model {part!r}{nearest(part, MODELS)}; known are {listing([*MODELS, ALL_COLUMNS])}")
    return names

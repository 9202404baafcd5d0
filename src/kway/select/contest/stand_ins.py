"""Which linear families give way to another on these rows, unless they are asked for by name, and why.

Lines between classes are much alike, whatever loss drew them: where a fit is slow, one family stands for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kway.linear.solvers.svm.shared_rows import FEWEST_CLASSES
from kway.planning.comparison import HEAVY
from kway.select.contest.scans import FoldedRows

MACHINES = "svm-rounded"  # on sparse rows the quick linear family, which stands for those alike
# as softmax, a line between classes
ALIKE = ("least-squares", "logistic", "perceptron", "svm", "svm-one-vs-all", MACHINES)
# seconds of a pass above which folds are spent where they decide: joint hinges, which take thousands of passes, are not
# run, later folds see only the alphas beside the first's best, and a family that is alone is not run on every fold
QUICK_PASS = 5e-5
_MANY_CLASSES = 500  # above which one linear family stands for all: of 1,250, machines and perceptrons take minutes


class _GivesWay(NamedTuple):
    """On which rows a family gives way, and why."""

    on: Callable[[FoldedRows], bool]
    why: str


_OWN_REASONS = {
    "svm": _GivesWay(
        lambda data: data.pass_seconds() > QUICK_PASS,
        "hinges of all classes at once take thousands of passes, and svm-one-vs-all stands for them; ask by name",
    ),
    MACHINES: _GivesWay(
        lambda data: not data.sparse, "it is for sparse rows, and svm-one-vs-all stands for it; ask by name"
    ),
    "svm-one-vs-all": _GivesWay(
        lambda data: data.sparse,
        "svm-rounded, whose scores of sparse rows are steadier, stands for it; ask by name",
    ),
}


def stood_for(name: str, data: FoldedRows) -> str:
    """Why a linear family gives way to another on these rows; "" where it does not."""
    own = _OWN_REASONS.get(name)
    if own is not None and own.on(data):
        return own.why
    quick = _quick_one(data)
    if name not in (*ALIKE, "softmax") or name == quick:
        return ""
    if quick == MACHINES and name != "softmax":
        return "of sparse rows svm-rounded, as good and far quicker, stands for it; ask by name"
    if (n_classes := int(data.codes.max()) + 1) > _MANY_CLASSES:
        return f"with {n_classes:,} classes {quick} stands for the linear ones; ask by name"
    if (seconds := data.pass_seconds()) < HEAVY:
        return ""
    return f"one pass over the rows takes about {seconds:.1f} s, and {quick} stands for the linear ones; ask by name"


def _quick_one(data: FoldedRows) -> str:
    """The family that stands for the others: softmax, or machines that share sparse rows."""
    several = data.codes.max() >= FEWEST_CLASSES - 1
    stated = not data.measure.rises  # log loss asks for probabilities, which machines do not state
    return MACHINES if data.sparse and several and not stated else "softmax"

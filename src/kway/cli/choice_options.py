"""Options of `kway fit` and `kway compare` that say how the choice is made."""

from __future__ import annotations

from typing import Annotated

import typer

from kway.cli.usage import as_usage
from kway.data.suggest import listing, nearest
from kway.errors import UsageError

# as kway.select.contest.measures has them, which is slow to load; tests hold them equal
JUDGES = ("accuracy", "balanced", "macro-f1", "log-loss")
DEVICES = ("cpu", "cuda", "auto")  # likewise those of kway.parameters

MetricOption = Annotated[
    str, typer.Option("--metric", help=f"What the choice is made by: {', '.join(JUDGES)}.", metavar="NAME")
]
ClassWeightOption = Annotated[
    str | None, typer.Option("--class-weight", help="balanced: rows of rare classes count for more.", metavar="NAME")
]
FoldsOption = Annotated[int, typer.Option("--folds", min=2, help="Folds of the cross-validation.")]
RepeatsOption = Annotated[int, typer.Option("--repeats", min=1, help="Draw the folds so many times.")]
AlsoOption = Annotated[
    list[str] | None,
    typer.Option(
        "--also",
        help="Another library's classifier, scored beside ours: sklearn.svm.SVC, or trees; none: not even trees.",
        metavar="MODULE.CLASS",
    ),
]
SetsOption = Annotated[
    float | None, typer.Option("--sets", help="Sets of labels that hold the right one so often: 0.9.", metavar="SHARE")
]
UnknownOption = Annotated[
    float | None,
    typer.Option("--unknown", help="Allow the answer unknown, for so many known rows at most: 0.05.", metavar="SHARE"),
]

DeviceOption = Annotated[
    str, typer.Option("--device", help="Where classifiers compute: cpu, cuda, or auto.", metavar="NAME")
]


def check_choosing(metric: str, class_weight: str | None, device: str) -> None:
    """Names that cannot be meant are bad usage, told before any row is read."""
    if metric not in JUDGES:
        raise UsageError(f"--metric is {metric!r}{nearest(metric, JUDGES)}; it may be {listing(JUDGES)}")
    if class_weight not in (None, "balanced"):
        raise UsageError(f"--class-weight is {class_weight!r}; it may be balanced, or be left out")
    if device not in DEVICES:
        raise UsageError(f"--device is {device!r}; it may be {listing(DEVICES)}")


def check_shares(sets: float | None, unknown: float | None) -> None:
    """The same for what is promised."""
    for option, share, usual in (("--sets", sets, 0.9), ("--unknown", unknown, 0.05)):
        if share is not None and not 0 < share < 1:
            raise UsageError(f"{option} is {share:g}; it must be a share between 0 and 1, such as {usual}")


def references(also: list[str] | None) -> tuple[str, ...] | None:
    """The names asked for, each of which can be imported; none of them where that is what was asked."""
    if not also:
        return None
    from kway.select.contest.references import checked_references

    with as_usage():
        return checked_references([name for name in also if name != "none"])

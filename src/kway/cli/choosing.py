"""Options of `kway fit` and `kway compare` that say how the choice is made."""

from __future__ import annotations

from typing import Annotated

import typer

METRICS = ("accuracy", "balanced", "macro-f1", "log-loss")  # as kway.select.measures has them; tests hold them equal

MetricOption = Annotated[
    str, typer.Option("--metric", help=f"What the choice is made by: {', '.join(METRICS)}.", metavar="NAME")
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


def references(also: list[str] | None) -> tuple[str, ...] | None:
    """The names asked for; none of them where that is what was asked."""
    return None if not also else tuple(name for name in also if name != "none")

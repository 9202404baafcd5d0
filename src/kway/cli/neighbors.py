"""`kway neighbors MODEL DATA`: who voted on each row."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import typer

from kway.cli.options import EmbedOption, JsonOption, RowsArgument, with_options
from kway.cli.output import emit_json, show_table
from kway.tables.options import ReadOptions


@with_options
def neighbors(
    model: Annotated[str, typer.Argument(help="A model file of a neighbours classifier.")],
    data: RowsArgument,
    reading: ReadOptions,
    k: Annotated[int | None, typer.Option("--k", "-k", min=1, help="Neighbours that vote; else the model's.")] = None,
    rows: Annotated[int | None, typer.Option("--rows", min=1, help="Only the first so many rows.")] = None,
    embed: EmbedOption = None,
    json: JsonOption = False,
) -> None:
    """List the neighbours of every row of DATA: their rows, labels, distances and weights."""
    from kway.cli.model_rows import read_all
    from kway.errors import InputError

    whole, found = read_all(model, data, reading, needs_labels=False, embed=embed)
    fitted, X = _voters(whole, found.X)
    if not hasattr(fitted, "explain") or not hasattr(fitted, "kneighbors"):
        raise InputError(
            f"{model} is a {type(fitted).__name__}, which has no neighbours; fit one with --model neighbors"
        )
    if k is not None:
        fitted.set_params(n_neighbors=k)
    own_k = k is None and fitted.agreement_ is not None  # the index was tuned for the model's own k
    listed = [about(told) for told in _told(fitted, X if rows is None else X[:rows])]
    if json:
        emit_json({"index": fitted.index_.why_, "agreement": str(fitted.agreement_) if own_k else None, "rows": listed})
        return
    columns = ("row", "prediction", "share", "runner-up", "gap", "neighbours: row label (distance, weight)")
    show_table(f"Neighbours ({fitted.index_.why_})", columns, [_voters_line(i, row) for i, row in enumerate(listed)])


class _Voters(NamedTuple):
    """The classifier that answers, and the rows as it sees them."""

    model: Any
    X: Any


def _voters(model: Any, X: Any) -> _Voters:
    """Without the features, the map of the columns and the temperature around it."""
    from kway.base.wrappers import layers

    *around, inner = layers(model)
    for layer in around:
        seen = getattr(layer, "numbers", None) or getattr(layer, "mapped", None)
        X = X if seen is None else seen(X)
    return _Voters(inner, X)


def _told(model: Any, X: Any) -> list[dict[str, Any]]:
    """The explanation of each row by itself."""
    told = model.explain(X)._asdict()
    return [{name: values[i] for name, values in told.items()} for i in range(len(told["labels"]))]


def about(told: dict[str, Any]) -> dict[str, Any]:
    """One row's explanation as plain facts."""
    voters = zip(told["voters"], told["voter_labels"], told["distances"], told["weights"])
    return {
        "prediction": told["labels"],
        "share": float(told["probabilities"][0]),
        "runner_up": told["runner_up"],
        "gap": float(told["gap"]),
        "neighbours": [
            {"row": int(row), "label": label, "distance": float(distance), "weight": float(weight)}
            for row, label, distance, weight in voters
            if row >= 0
        ],
    }


def _voters_line(i: int, row: dict[str, Any]) -> tuple[str, ...]:
    voters = "  ".join(f"{v['row']} {v['label']} ({v['distance']:.4g}, {v['weight']:.3f})" for v in row["neighbours"])
    return (str(i), str(row["prediction"]), f"{row['share']:.3f}", str(row["runner_up"]), f"{row['gap']:.3f}", voters)

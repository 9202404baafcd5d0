"""`kway predict MODEL DATA`: labels, the k best labels, or probabilities, one line a row."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kway.cli.options import AskedArgument, JsonOption, ModelArgument, MovedOption, reads_data
from kway.cli.output import emit_json, safe, say

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kway.data.reading import ReadOptions


@reads_data
def predict(
    model: ModelArgument,
    data: AskedArgument,
    reading: ReadOptions,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="csv, csv.gz or parquet; else stdout.")] = None,
    topk: Annotated[int | None, typer.Option("--topk", min=1, help="The K best labels and their scores.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="The probability of every class.")] = False,
    embed: MovedOption = None,
    json: JsonOption = False,
) -> None:
    """Predict the label of every row of DATA; the column --target, if it has one, is left out."""
    from kway.cli.model_rows import ready
    from kway.data.sources.writing import write_columns, write_csv

    fitted, rows = ready(model, data, reading, needs_labels=False, embed=embed)
    columns = predictions(fitted, rows.X, topk, proba)
    n = len(columns["prediction"])
    if out is not None:
        write_columns(columns, out)
    if json:
        emit_json({"rows": n, "out": str(out)} if out else {"rows": n, "predictions": columns})
    elif out is None:
        write_csv(columns, sys.stdout.buffer)
    else:
        say(f"Wrote {n:,} predictions to {safe(out)}.")


def predictions(model: Any, X: Any, topk: int | None, proba: bool) -> dict[str, NDArray]:
    """Columns of the answer: `prediction`, then label_1, score_1, ... and p_CLASS as asked for."""
    from kway.errors import InputError

    if proba and not hasattr(model, "predict_proba"):
        raise InputError(f"{type(model).__name__} has no probabilities; leave out --proba, or use --topk for scores")
    columns: dict[str, NDArray] = {}
    if topk is not None:
        labels, scores = model.predict_topk(X, min(topk, len(model.classes_)))  # (n, k) each
        columns["prediction"] = labels[:, 0]
        for j in range(labels.shape[1]):
            columns[f"label_{j + 1}"], columns[f"score_{j + 1}"] = labels[:, j], scores[:, j]
    if proba:
        p = model.predict_proba(X)  # (n, K)
        columns.setdefault("prediction", model.classes_[p.argmax(axis=1)])
        columns |= {f"p_{label}": p[:, j] for j, label in enumerate(model.classes_.tolist())}
    return {**(columns or {"prediction": model.predict(X)}), **promised(model, X)}


def promised(model: Any, X: Any) -> dict[str, NDArray]:
    """Columns of a model that answers with sets (`set`: labels with | between), or with "unknown" (`prediction`)."""
    import numpy as np

    columns: dict[str, NDArray] = {}
    inner = model
    while inner is not None and not hasattr(inner, "unknown_"):
        inner = getattr(inner, "estimator_", None)
    if inner is not None:
        labels = model.predict(X)
        columns["prediction"] = np.where(labels == inner.unknown_, "unknown", labels.astype(str))
    if hasattr(model, "predict_set"):
        columns["set"] = np.array(["|".join(map(str, labels)) for labels in model.predict_set(X).to_lists()])
    return columns

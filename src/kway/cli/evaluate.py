"""`kway evaluate MODEL DATA`: how well the model predicts rows whose labels are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kway.cli.output import Json, Target, emit_json, number, safe, say, show_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_CLASSES = 20  # lines of the table for people


def evaluate(
    model: Annotated[str, typer.Argument(help="A model file.")],
    data: Annotated[str, typer.Argument(help="A file or a known set (of which the test rows are taken).")],
    target: Target = None,
    json: Json = False,
) -> None:
    """Compare predictions with the labels in DATA."""
    from kway.cli.job import score
    from kway.cli.rows import ready

    fitted, rows = ready(model, data, target, needs_labels=True)
    assert rows.y is not None
    scores = score(fitted, rows.X, rows.y)
    classes = by_class(rows.y, fitted.predict(rows.X))
    if json:
        emit_json({"accuracy": scores.accuracy, "log_loss": scores.log_loss, "rows": scores.rows, "classes": classes})
        return
    loss = "" if scores.log_loss is None else f", log loss {scores.log_loss:.4f}"
    say(f"Accuracy [bold]{scores.accuracy:.4f}[/]{loss} on {scores.rows:,} rows of {safe(data)}.")
    worst = sorted(classes, key=lambda c: c["recall"])[:_MOST_CLASSES]
    title = (
        "Classes, worst first" if len(worst) == len(classes) else f"The {len(worst)} worst of {len(classes)} classes"
    )
    show_table(
        title,
        ("class", "rows", "recall", "most often taken for"),
        [(str(c["class"]), f"{c['rows']:,}", number(c["recall"]), str(c["taken_for"] or "")) for c in worst],
    )


def by_class(y: NDArray, predicted: NDArray) -> list[dict[str, Any]]:
    """For each class its rows, the share predicted right, and the label it is most often mistaken for."""
    import numpy as np

    lines = []
    for label in np.unique(y).tolist():
        answers = predicted[y == label]
        wrong, counts = np.unique(answers[answers != label], return_counts=True)
        lines.append(
            {
                "class": label,
                "rows": len(answers),
                "recall": float(np.mean(answers == label)),
                "taken_for": wrong[counts.argmax()].item() if len(wrong) else None,
            }
        )
    return lines

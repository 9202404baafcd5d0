"""`kway evaluate MODEL DATA`: how well the model predicts rows whose labels are known."""

from __future__ import annotations

import warnings
from typing import Any

from kway.cli.options import EmbedOption, JsonOption, ModelArgument, RowsArgument, with_options
from kway.cli.output import emit_json, safe, say, show_table, shown_number
from kway.tables.options import ReadOptions
from kway.text_tables import one_line

_MOST_CLASSES = 20  # lines of the table for people
_LONGEST = 60  # characters of a class in it


@with_options
def evaluate(
    model: ModelArgument, data: RowsArgument, reading: ReadOptions, embed: EmbedOption = None, json: JsonOption = False
) -> None:
    """Compare predictions with the labels in DATA."""
    from kway.auto.evaluation import evaluate_blocks
    from kway.cli.model_rows import read_blocks

    fitted, read, skipped = read_blocks(model, data, reading, needs_labels=True, embed=embed)
    labelled = ((rows.X, rows.y) for rows in read)  # read_blocks has checked that there are labels
    scores = evaluate_blocks(fitted, labelled)  # type: ignore[arg-type]
    classes = scores.classes
    _warn_of_unseen({c["class"]: c["rows"] for c in classes}, set(fitted.classes_.tolist()))
    if json:
        emit_json({**vars(scores), "skipped": skipped})
        return
    loss = "" if scores.log_loss is None else f", log loss {scores.log_loss:.4f}"
    say(
        f"Accuracy [bold]{scores.accuracy:.4f}[/] (95 % interval {scores.low:.4f} to {scores.high:.4f}), "
        f"macro F1 {scores.macro_f1:.4f}{loss} on {scores.rows:,} rows of {'stdin' if data == '-' else safe(data)}."
    )
    worst = sorted(classes, key=lambda c: c["recall"])[:_MOST_CLASSES]
    title = (
        "Classes, worst first" if len(worst) == len(classes) else f"The {len(worst)} worst of {len(classes)} classes"
    )
    lines = [(str(c["class"]), f"{c['rows']:,}", shown_number(c["recall"]), _shown(c["taken_for"])) for c in worst]
    show_table(title, ("class", "rows", "recall", "most often taken for"), lines)


def _shown(label: Any) -> str:
    return "" if label is None else one_line(label, _LONGEST)


def _warn_of_unseen(rows: dict[Any, int], known: set[Any]) -> None:
    """Say that labels, with the rows of each, are none of the model's, such as one of a line that was cut short."""
    from kway.suggest import listing

    unseen = sorted((label for label in rows if label not in known), key=str)
    if unseen:
        warnings.warn(
            f"{sum(rows[label] for label in unseen):,} rows have labels that the model never saw "
            f"({listing(map(repr, unseen), 5)}): they count as mistakes",
            stacklevel=2,
        )

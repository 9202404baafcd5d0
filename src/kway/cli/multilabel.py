"""What `kway fit` and `kway evaluate` print for models with several labels per row."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kway.cli.fit_output import data_facts
from kway.cli.output import emit_json, safe, say, say_note, show_table
from kway.text_tables import clipped, count

if TYPE_CHECKING:
    from kway.auto.multilabel import LabelSetScores, MultilabelResult


def multilabel_facts(result: MultilabelResult) -> dict[str, Any]:
    """Return what `kway fit --json` prints, without the names of the files."""
    best = result.comparison.best
    data = data_facts(result.data, result.model.estimator_.n_features_in_, len(result.model.classes_))
    data["labels"] = data.pop("classes")
    return {
        "best": best.model,
        "setting": dict(best.setting),
        "test": vars(result.scores),
        "models": list(map(asdict, result.comparison.rows)),
        "metric": result.comparison.measure,
        "baseline": result.baseline,
        "notes": list(result.notes),
        "seconds": result.seconds,
        "data": data,
    }


def show_multilabel(result: MultilabelResult) -> None:
    """Print the size of DATA, the leaderboard, the test scores and the labels with the lowest F1."""
    data, comparison = result.data, result.comparison
    say(
        f"[bold]{safe(data.name)}[/]: {count(data.n, 'training row')}, {count(len(data.test_y), 'test row')}, "
        f"{count(result.model.estimator_.n_features_in_, 'feature')}, {count(len(result.model.classes_), 'label')}, "
        "any number per row"
    )
    title = f"Cross-validation on the training rows, ordered by {comparison.measure}"
    show_table(title, comparison.columns, comparison.lines(), 0)
    for note in result.notes:
        if note not in data.notes:
            say_note(note)
    say(f"Winner: [bold green]{comparison.best.model}[/], fitted again on all training rows.")
    show_set_scores(result.scores, f"rows not used in training ({data.test_part})")
    say(f"Baseline: every label for every row has micro F1 {result.baseline:.4f}.")


def show_set_scores(scores: LabelSetScores, rows: str, max_labels: int = 20) -> None:
    """Print the scores, and the `max_labels` labels with the lowest F1."""
    say(
        f"Micro F1 [bold]{scores.micro_f1:.4f}[/], macro F1 {scores.macro_f1:.4f}, all labels of a row correct "
        f"{scores.subset_accuracy:.4f}, Hamming loss {scores.hamming_loss:.4f}, log loss {scores.log_loss:.4f}, on "
        f"{scores.rows:,} {safe(rows)}."
    )
    labels = sorted(scores.labels, key=lambda line: line["f1"])
    title = "Labels, lowest F1 first"
    if len(labels) > max_labels:
        title = f"The {max_labels} of {len(labels):,} labels with the lowest F1"
    columns = ("label", "rows", "precision", "recall", "F1", "threshold")
    show_table(title, columns, [label_line(line) for line in labels[:max_labels]])


def label_line(line: dict[str, Any], width: int = 60) -> tuple[str, ...]:
    """Return the cells of a label."""
    numbers = (f"{line[name]:.3f}" for name in ("precision", "recall", "f1", "threshold"))
    return clipped(str(line["label"]), width), f"{line['rows']:,}", *numbers


def evaluate_label_sets(fitted: Any, blocks: Any, name: str, skipped: list[str], json: bool) -> None:
    """Score a model on rows with sets of labels, and print the scores."""
    from kway.auto.multilabel import evaluate_sets

    scores = evaluate_sets(fitted, ((rows.X, rows.y) for rows in blocks))
    if json:
        emit_json({**vars(scores), "skipped": skipped})
    else:
        show_set_scores(scores, f"rows of {name}")

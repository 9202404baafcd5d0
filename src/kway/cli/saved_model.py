"""Commands on a saved model: `kway evaluate`, `kway explain`, `kway neighbors` and `kway info`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kway.cli.options import EmbedOption, ForceOption, JsonOption, ModelArgument, RowsArgument, flag, with_options
from kway.cli.output import emit_json, format_number, safe, say, say_note, show_table, terminal_width
from kway.errors import UsageError
from kway.tables.read_options import ReadOptions
from kway.text_tables import clipped, one_line, plain

if TYPE_CHECKING:
    from kway.auto.drift import Drift
    from kway.auto.evaluation import Scores
    from kway.auto.reasons import Reasons
    from kway.cli.model_rows import ModelAndBlocks
    from kway.modelfile import ModelInfo


@with_options
def evaluate(
    model: ModelArgument,
    data: RowsArgument,
    reading: ReadOptions,
    embed: EmbedOption = None,
    drift: Annotated[
        bool,
        flag("--drift", "Also compare DATA with the training rows, column by column. DATA then needs no labels."),
    ] = False,
    figure: Annotated[
        Path | None,
        typer.Option(
            "--figure",
            metavar="FILE",
            help="With --drift, also plot the columns and save the figure to this svg, png or html file.",
        ),
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Score a model on labeled rows.

    Prints the accuracy with its 95% confidence interval, the macro F1, the log
    loss (if the model gives probabilities) and the recall of each class. With
    --drift, it also names the columns whose values have changed since training.

    Example: kway evaluate model.kway held_out.csv
    """
    from kway import modelfile
    from kway.auto.evaluation import tally_blocks
    from kway.auto.hierarchy import model_levels
    from kway.auto.trained_rows import ROWS, TrainedRows
    from kway.cli.model_rows import read_blocks
    from kway.cli.multilabel import evaluate_label_sets
    from kway.pipelines import label_separator

    if figure is not None and not drift:
        raise UsageError("--figure draws the drift of the columns; add --drift")
    if drift:
        _evaluate_drift(model, data, reading, embed, figure, force, json)
        return
    fitted, blocks, skipped = read_blocks(model, data, reading, needs_labels=True, embed=embed)
    if label_separator(fitted) is not None:
        evaluate_label_sets(fitted, blocks, "stdin" if data == "-" else data, skipped, json)
        return
    trained = TrainedRows(modelfile.info(model).notes.get(ROWS))
    labelled = ((rows.X, rows.y) for rows in trained.watch(blocks))  # read_blocks has checked that there are labels
    tally = tally_blocks(fitted, labelled)
    scores, levels = tally.scores(), model_levels(model, tally, fitted.classes_)
    _warn_of_unseen({c["class"]: c["rows"] for c in scores.classes}, set(fitted.classes_.tolist()))
    if json:
        shape = {} if levels is None else {"levels": levels.records()}
        emit_json({**vars(scores), "skipped": skipped, "trained_rows": trained.count(scores.rows), **shape})
        return
    show_scores(scores, "stdin" if data == "-" else data)
    if trained.count(scores.rows):
        say_note(f"{trained.words(scores.rows)}, so these scores are too high for new rows")
    if levels is not None:
        show_levels(levels.records())


def _evaluate_drift(
    model: str, data: str, reading: ReadOptions, embed: str | None, figure: Path | None, force: bool, json: bool
) -> None:
    """Compare DATA with the training rows, and score the predictions if DATA has labels."""
    import numpy as np

    from kway import modelfile
    from kway.auto.drift import DriftCounts, stored_summary, unknown_label
    from kway.auto.evaluation import Tally, probabilities_or_none
    from kway.pipelines import label_separator
    from kway.tables.outputs import Output, check_places, is_drift_figure

    if figure is not None:
        check_places([Output("--figure", figure, "figure", is_drift_figure)], {"MODEL": model, "DATA": data}, force)
    summary = stored_summary(modelfile.info(model).notes, model)
    fitted, blocks, skipped = _blocks_with_labels(model, data, reading, embed)
    if label_separator(fitted) is not None:
        raise UsageError("--drift compares models of one label per row, and this one predicts several; leave it out")
    counts, tally = DriftCounts(summary, unknown_label(fitted)), None
    for rows in blocks:
        if rows.y is not None:
            tally = tally or Tally(np.asarray(fitted.classes_))
            counts.add(rows.X, *tally.add(fitted, rows.X, rows.y))
        else:
            p = probabilities_or_none(fitted, rows.X)
            counts.add(rows.X, fitted.predict(rows.X), None if p is None else p.max(axis=1))
    result, scores = counts.drift(), None if tally is None else tally.scores()
    if figure is not None:
        from kway.report.drift import save_drift

        save_drift(result, figure)
    if json:
        emit_json({**({} if scores is None else vars(scores)), "skipped": skipped, "drift": result.record()})
        return
    if scores is not None:
        show_scores(scores, "stdin" if data == "-" else data)
    show_drift(result)


def _blocks_with_labels(model: str, data: str, reading: ReadOptions, embed: str | None) -> ModelAndBlocks:
    """Read DATA with its labels, or without if it has none and the user named no column."""
    from kway.cli.model_rows import read_blocks
    from kway.tables.sources.labels import UnlabeledError

    if data == "-":  # which can be read only once
        return read_blocks(model, data, reading, needs_labels=reading.target is not None, embed=embed)
    try:
        return read_blocks(model, data, reading, needs_labels=True, embed=embed)
    except UnlabeledError:
        if reading.target is not None:
            raise
        return read_blocks(model, data, reading, needs_labels=False, embed=embed)


def show_drift(found: Drift, most: int = 12, wide: int = 110) -> None:
    """Print how many columns drifted, and the columns with the lowest p-values.

    A terminal of fewer than `wide` characters has no column for the bin that changed most.
    """
    from kway.auto.drift import DRIFT_COLUMNS

    say(f"Drift: {safe(found.headline())}.")
    lines, kept = found.lines(), len(DRIFT_COLUMNS) if terminal_width() >= wide else len(DRIFT_COLUMNS) - 1
    show_table("Columns, lowest p-value first", DRIFT_COLUMNS[:kept], [line[:kept] for line in lines[:most]])
    if len(lines) > most:
        say(f"{len(lines) - most:,} more columns; --json lists all.")


def show_levels(levels: list[dict[str, Any]]) -> None:
    """Print the accuracy of each level of a hierarchy of labels."""
    from kway.auto.hierarchy import level_table

    show_table("Accuracy by level of the hierarchy", *level_table(levels))


def show_scores(scores: Scores, name: str, max_classes: int = 20, label_width: int = 60) -> None:
    """Print the scores, and the `max_classes` classes with the lowest recall."""
    loss = "" if scores.log_loss is None else f", log loss {scores.log_loss:.4f}"
    say(
        f"Accuracy [bold]{scores.accuracy:.4f}[/] (95% interval {scores.low:.4f} to {scores.high:.4f}), "
        f"macro F1 {scores.macro_f1:.4f}{loss} on {scores.rows:,} rows of {safe(name)}."
    )
    classes = sorted(scores.classes, key=lambda c: c["recall"])
    title = "Classes, lowest recall first"
    if len(classes) > max_classes:
        title = f"The {max_classes} of {len(classes):,} classes with the lowest recall"
    lines = []
    for c in classes[:max_classes]:
        confused = "" if c["taken_for"] is None else one_line(c["taken_for"], label_width)
        lines.append((str(c["class"]), f"{c['rows']:,}", format_number(c["recall"]), confused))
    show_table(title, ("class", "rows", "recall", "most often predicted instead"), lines)


def _warn_of_unseen(rows: dict[Any, int], known: set[Any]) -> None:
    """Warn of labels that are not classes of the model; `rows` counts the rows per label."""
    from kway.suggest import listing

    unseen = sorted((label for label in rows if label not in known), key=str)
    if unseen:
        warnings.warn(
            f"{sum(rows[label] for label in unseen):,} rows have labels that are not classes of the model "
            f"({listing(map(repr, unseen), 5)}); they count as mistakes",
            stacklevel=2,
        )


@with_options
def explain(
    model: ModelArgument,
    reading: ReadOptions,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="Labeled rows on which to measure the importance of the columns. Required if MODEL is not linear and "
            "contains no importances from `kway fit`.",
        ),
    ] = None,
    columns: Annotated[
        int,
        typer.Option(
            "--columns",
            "-n",
            min=1,
            metavar="N",
            help="Number of columns to list: for each class if the result is per class, otherwise in total.",
        ),
    ] = 8,
    seconds: Annotated[
        float, typer.Option("--seconds", help="Time limit for the measurement on DATA, in seconds.")
    ] = 20.0,
    embed: EmbedOption = None,
    json: JsonOption = False,
) -> None:
    """Explain what the predictions of a model depend on.

    For a linear model, this lists the columns and words that favor each class.
    For any other model, it lists how much the accuracy drops when the values of
    a column are shuffled (permutation importance), as `kway fit` measured it.

    With DATA, the drop in accuracy is measured on DATA instead. For trees, kernel
    softmax and blends, kway then also lists the mean contribution of each column
    to the score of each class.

    Example: kway explain model.kway
    """
    from kway.auto.reasons import explain as find_reasons
    from kway.cli.model_rows import load_model, read_all

    if data is None:
        reasons = find_reasons(load_model(model, embed), n_columns=columns)
    else:
        fitted, rows = read_all(model, data, reading, needs_labels=True, embed=embed)
        reasons = find_reasons(fitted, rows.X, rows.y, columns, seconds)
    if json:
        emit_json({"how": reasons.how, "reasons": reasons.records()})
    else:
        show_reasons(reasons)


def show_reasons(found: Reasons, max_classes: int = 30) -> None:
    """Print the columns of the first `max_classes` classes, or one list for all classes."""
    if len(found.classes) == 1:
        rows = [(column, f"{pull:+.4f}") for column, pull in zip(found.columns[0], found.pulls[0])]
        say(f"[bold]Columns that matter: {safe(found.how)}[/]")  # a title of the table would be as narrow as the table
        show_table("", ("column", "drop"), rows)
        return
    lines = found.lines()
    say(f"[bold]Strongest columns: {safe(found.how)}[/]")
    show_table("", ("class", "columns, strongest first"), lines[:max_classes])
    if len(lines) > max_classes:
        say(f"… {len(lines) - max_classes:,} more classes; --json lists all.")


@with_options
def neighbors(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file that contains a neighbors classifier.")],
    data: RowsArgument,
    reading: ReadOptions,
    k: Annotated[
        int | None,
        typer.Option(
            "--k",
            "-k",
            min=1,
            metavar="K",
            help="Number of neighbors that vote. By default, the number with which the model was fitted.",
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option("--rows", min=1, metavar="N", help="Use only the first N rows of DATA. By default, all."),
    ] = None,
    embed: EmbedOption = None,
    json: JsonOption = False,
) -> None:
    """List the nearest training rows of each row, which vote on its label, with their labels, distances and weights.

    Example: kway neighbors model.kway new.csv --rows 3
    """
    from kway.cli.model_rows import read_all
    from kway.errors import InputError

    fitted, model_rows = read_all(model, data, reading, needs_labels=False, embed=embed)
    classifier, X = _unwrap(fitted, model_rows.X)
    if not hasattr(classifier, "explain") or not hasattr(classifier, "kneighbors"):
        raise InputError(
            f"{model} is a {type(classifier).__name__}, which has no neighbors; fit one with --model neighbors"
        )
    agreement = (
        None if k is not None or classifier.agreement_ is None else str(classifier.agreement_)
    )  # only for the model's own k
    if k is not None:
        classifier.set_params(n_neighbors=k)
    votes = _vote_facts(classifier, X if rows is None else X[:rows])
    if json:
        emit_json({"index": classifier.index_.why_, "agreement": agreement, "rows": votes})
    else:
        show_votes(votes)


def _unwrap(model: Any, X: Any) -> tuple[Any, Any]:
    """Return the innermost classifier, and the rows as the layers around it transform them."""
    from kway.base.wrappers import layers

    *outer, inner = layers(model)
    for layer in outer:
        transform = getattr(layer, "numbers", None) or getattr(layer, "mapped", None)
        X = X if transform is None else transform(X)
    return inner, X


def _vote_facts(model: Any, X: Any) -> list[dict[str, Any]]:
    """Return the prediction and the neighbors of each row as plain values."""
    votes = model.explain(X)
    return [
        {
            "prediction": votes.labels[i],
            "share": float(votes.probabilities[i][0]),
            "runner_up": votes.runner_up[i],
            "gap": float(votes.gap[i]),
            "neighbors": [
                {"row": int(row), "label": label, "distance": float(distance), "weight": float(weight)}
                for row, label, distance, weight in zip(
                    votes.voters[i], votes.voter_labels[i], votes.distances[i], votes.weights[i]
                )
                if row >= 0
            ],
        }
        for i in range(len(votes.labels))
    ]


def show_votes(votes: list[dict[str, Any]], max_neighbors: int = 5) -> None:
    """Print one line per row, with its `max_neighbors` nearest neighbors."""
    lines = []
    for i, row in enumerate(votes):
        voters = row["neighbors"]
        cells = [f"{v['row']} {v['label']} ({v['distance']:.4g}, {v['weight']:.3f})" for v in voters[:max_neighbors]]
        rest = [f"… {len(voters) - max_neighbors} more"] if len(voters) > max_neighbors else []
        share, gap = f"{row['share']:.3f}", f"{row['gap']:.3f}"
        lines.append((str(i), str(row["prediction"]), share, str(row["runner_up"]), gap, "\n".join(cells + rest)))
    columns = ("row", "prediction", "share", "runner-up", "gap", "neighbors: row label (distance, weight)")
    show_table("Training rows that voted", columns, lines)


def info(
    model: ModelArgument,
    verify: Annotated[
        bool, flag("--verify", "Also check the whole file against its SHA-256 checksum to detect corruption.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show what a model file contains.

    Lists the type of model, the numbers of classes and features, the parameters
    and the arrays.

    Example: kway info model.kway
    """
    from kway import modelfile

    contents = modelfile.info(model)
    if verify:
        modelfile.verify(model)
    if json:
        values = {k: v for k, v in vars(contents).items() if k != "tensors"}
        emit_json({**values, "tensors": [vars(t) for t in contents.tensors], "verified": verify or None})
    else:
        show_info(contents, verify)


def show_info(info: ModelInfo, verified: bool, value_width: int = 60) -> None:
    """Print a summary line and the tables of a model file."""
    classes = "" if info.n_classes is None else f"{info.n_classes:,} classes, "  # an index has none
    say(f"[bold]{info.class_name}[/]: {classes}{info.n_features:,} features, {info.n_bytes:,} bytes")
    checked = ", content verified" if verified else ""
    say(f"Written by kway {info.kway_version}, file format {info.format_version}{checked}.")
    shown_notes = {name: value for name, value in info.notes.items() if name != "rows"}  # hashes, which say nothing
    groups = {"Notes": shown_notes, "Parameters": info.params, "Learned values": info.facts}
    for title, values in groups.items():
        rows = [(name, clipped(_in_words(value), value_width)) for name, value in values.items() if value is not None]
        if rows:
            show_table(title, ("name", "value"), rows)
    arrays = [
        (t.name, t.numpy_dtype, " x ".join(map(str, t.shape)) or "scalar", f"{t.end - t.start:,}") for t in info.tensors
    ]
    show_table("Arrays", ("name", "type", "shape", "bytes"), arrays)


def _in_words(value: Any) -> str:
    """Return a value of a model file as short text; a classifier inside the model as the name of its class."""
    if isinstance(value, dict) and {"class", "params", "facts"} <= value.keys():
        return str(value["class"])
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_in_words, value))
    return f"{value:.4g}" if isinstance(value, float) else str(plain(value))

"""`kway fit` compares, chooses, calibrates, tests, saves and reports. `kway compare` stops after the comparison.

Both print, in this order: what was read, possible leaks, the leaderboard, the winner, its test result with baselines,
the files, and the next command. Columns and families that need no attention are listed only with --verbose.
"""

from __future__ import annotations

import shlex
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kway.auto.fit_options import FitOptions
from kway.cli.options import (
    AddressOption,
    ClusterOption,
    DataArgument,
    ForceOption,
    JsonOption,
    on_cluster,
    with_flags,
    with_options,
)
from kway.cli.output import emit_json, format_number, live_view, safe, say, show_table, terminal_width
from kway.cli.saved_model import show_levels
from kway.cli.warmup import announce_compilation
from kway.errors import UsageError
from kway.progress import portion, stage
from kway.tables.read_options import ReadOptions
from kway.text_tables import clipped, count

if TYPE_CHECKING:
    from kway.auto.calibration import Tradeoff
    from kway.auto.columns import ColumnSummary
    from kway.auto.job import JobResult
    from kway.auto.multilabel import MultilabelResult
    from kway.auto.train_test import TrainTest
    from kway.tables.features.features import Features

VerboseOption = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", metavar="", help="Also list every column, and why families stopped early or were not run."
    ),
]


@with_options
def compare(
    data: DataArgument,
    reading: ReadOptions,
    options: FitOptions,
    cluster: ClusterOption = False,
    address: AddressOption = None,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> None:
    """Compare families of classifiers on DATA by cross-validation, without writing files or using the test rows.

    A family is one kind of classifier with all its settings, such as softmax
    or neighbors. The families are listed below.

    Example: kway compare offers.csv --target kind --model softmax,neighbors
    """
    from kway.auto.compare_data import compare_data
    from kway.auto.race.clock import Clock
    from kway.auto.train_test import read_train_test

    started = time.perf_counter()
    with live_view() as keep:
        announce_compilation()
        rows = read_train_test(data, reading, seed=options.seed)
        on_features = None if json else lambda features: keep(column_lines(features, rows, verbose))
        with on_cluster(cluster, address):
            chosen = compare_data(rows, options, Clock(options.budget, started), on_features)
    found = chosen.comparison
    result = {
        "leaks": [leak.record() for leak in chosen.leaks],
        "warnings": [str(leak) for leak in chosen.leaks if leak.warns],
        "best": found.best.model,
        "models": found.records(),
        "references": [row.record() for row in found.references],
        "metric": found.measure.name,
        "finished": found.finished,
        "skipped": dict(found.skipped),
        "notes": list(chosen.notes),
        "seconds": time.perf_counter() - started,
        "data": data_facts(rows, chosen.views[""].X.shape[1], len(found.classes)),
    }
    if json:
        emit_json(result)
        return
    show_comparison(result, verbose)
    say(f"Winner: [bold green]{found.best.model}[/]. Next: kway fit with the same options tests it and saves it.")


@with_options
def fit(
    data: DataArgument,
    reading: ReadOptions,
    options: FitOptions,
    out: Annotated[Path, typer.Option("--out", "-o", help="Model file to write.")] = Path("model.kway"),
    report: Annotated[Path, typer.Option("--report", help="HTML report to write.")] = Path("report.html"),
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures", help="Folder for the figures of the report as svg and png files; default: not written."
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            "--test",
            help="File with the test rows; default: the dataset's own test rows, or a fifth of DATA (at most 50,000 "
            "rows).",
        ),
    ] = None,
    cluster: ClusterOption = False,
    address: AddressOption = None,
    force: ForceOption = False,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> None:
    """Find the best classifier for DATA, test it, save it and write a report.

    kway sets test rows aside, compares families of classifiers on the other
    rows by cross-validation, and blends the best ones if that helps. It
    measures the result once on the test rows.

    A family is one kind of classifier with all its settings, such as softmax
    or neighbors. The families are listed below.

    Example: kway fit offers.csv --target kind
    """
    _check_outputs(out, report, figures, {"DATA": data, "--test": test, "--embed": options.embed}, force)
    from kway.auto.checkpoint import Checkpoint
    from kway.auto.job import data_notes, run_job
    from kway.auto.train_test import read_train_test

    started = time.perf_counter()
    if reading.multilabel is not None:
        if figures is not None or cluster or address is not None:
            raise UsageError("--figures, --cluster and --address do not work with --multilabel; leave them out")
        _fit_label_sets(data, reading, options, test, out, report, json)
        return
    with live_view() as keep:
        announce_compilation()
        rows = read_train_test(data, reading, test, options.seed)
        on_features = None if json else lambda features: keep(column_lines(features, rows, verbose))
        checkpoint = Checkpoint(out, rows, options, data_notes(rows, reading.target, reading.id))
        with on_cluster(cluster, address):
            found = run_job(rows, options, started, on_features, checkpoint)
    result = fit_facts(found, time.perf_counter() - started)
    if not json:
        show_comparison(result, verbose)
        show_winner(result)
    with live_view("writing the report", time.perf_counter() - started), portion(0.92, 1.0):
        if found.interrupted:
            out = checkpoint.draft_path()
        failures = write_outputs(found, out, report, figures, reading)
        if not failures and not found.interrupted:
            checkpoint.finish()
    _finish(result, failures, out, report, json, started)


def _fit_label_sets(
    data: str, reading: ReadOptions, options: FitOptions, test: str | None, out: Path, report: Path, json: bool
) -> None:
    """Run the job for several labels per row, and print and write its results."""
    from kway.auto.multilabel import check_options, read_label_sets, run_multilabel
    from kway.cli.multilabel import multilabel_facts, show_multilabel

    started = time.perf_counter()
    check_options(reading, options)
    with live_view():
        announce_compilation()
        found = run_multilabel(read_label_sets(data, reading, test, options.seed), reading, options, started)
    if not json:
        for note in found.data.notes:
            say(safe(_note(note)))
        show_multilabel(found)
    _finish(multilabel_facts(found), write_outputs(found, out, report, None, reading), out, report, json, started)


def _finish(
    result: dict[str, Any], failures: dict[str, str], out: Path, report: Path, json: bool, started: float
) -> None:
    """Print which files were written, or all results as JSON; exit with 1 if one could not be written."""
    written = {name: None if name in failures else str(path) for name, path in (("model", out), ("report", report))}
    result |= {"seconds": time.perf_counter() - started, **written}
    if json:
        emit_json(result)
    else:
        _show_files(result)
    for failure in failures.values():
        print(f"error: {failure}", file=sys.stderr)
    if failures:
        raise typer.Exit(1)


def _check_outputs(
    out: Path, report: Path, figures: Path | None, inputs: dict[str, str | Path | None], force: bool
) -> None:
    """Raise, before any work, if an output would replace an input or a file that kway did not write."""
    from kway.tables import outputs as o

    outputs = [o.Output("--out", out, "model", o.is_model), o.Output("--report", report, "report", o.is_report)]
    if figures is not None:
        from kway.report.figures import PICTURES

        o.refuse_as_folder("--figures", figures, outputs)
        o.check_output_folder("--figures", figures)
        outputs += o.figure_outputs("--figures", figures, list(PICTURES))
    o.check_places(outputs, inputs, force)


def write_outputs(
    found: JobResult | MultilabelResult, out: Path, report: Path, figures: Path | None, reading: ReadOptions
) -> dict[str, str]:
    """Write the model file and the report, each complete or not at all; return the errors by name."""
    from kway.report.page import write_page

    failures = {}
    try:
        with stage("saving the model"):
            found.save(out, reading.target, reading.id, force=True)  # _check_outputs has checked the path
    except OSError as error:
        failures["model"] = f"{out} cannot be written: {error.strerror or error}"
    try:
        with stage("writing the report"):
            write_page(report, found, shlex.join(["kway", *sys.argv[1:]]), figures)
    except OSError as error:
        failures["report"] = f"{error.filename or report} cannot be written: {error.strerror or error}"
    return failures


# ---- the result as one JSON object


def data_facts(data: TrainTest, n_features: int, n_classes: int) -> dict[str, Any]:
    """Return the size of DATA and of its parts."""
    return {
        "name": data.name,
        "train_rows": data.n,
        "test_rows": len(data.test_y),
        "test_part": data.test_part,
        "features": n_features,
        "classes": n_classes,
        "notes": list(data.notes),
    }


def fit_facts(found: JobResult, seconds: float) -> dict[str, Any]:
    """Return what `kway fit --json` prints, without the names of the files."""
    from kway.auto.hierarchy import job_levels
    from kway.auto.verdict import measured, verdict

    runner, comparison, levels = found.runner_up, found.comparison, job_levels(found)
    scores = found.evaluation.scores
    data = data_facts(found.data, found.X.shape[1], len(found.model.classes_))
    return {
        "leaks": [leak.record() for leak in found.leaks],
        "warnings": [str(leak) for leak in found.leaks if leak.warns],
        "best": found.best.model,
        "setting": dict(found.best.setting),
        "weights": dict(found.weights),
        "verdict": verdict(scores, found.baselines["majority class"]) or None,
        "test": vars(scores),
        "test_score": measured(scores, comparison.measure.name),
        "models": [row.record() for row in found.leaderboard],
        "references": [row.record() for row in comparison.references],
        "metric": comparison.measure.name,
        "sets": None if found.sets is None else _guarantee_facts(found.sets, "size", "coverage"),
        "unknown": None if found.unknown is None else _guarantee_facts(found.unknown, "answered", "accuracy"),
        "levels": None if levels is None else levels.records(),
        "more_rows": None if found.curve is None else str(found.curve),
        "wrong_labels": _wrong_label_facts(found),
        "baselines": found.baselines,
        "runner_up": None if runner is None else {**vars(runner), "test": vars(runner.test)},
        "temperature": found.temperature,
        "finished": comparison.finished,
        "skipped": dict(comparison.skipped),
        "notes": list(found.notes),
        "seconds": seconds,
        "stages": found.seconds,
        "data": {**data, "fitted_rows": found.fitted_rows},
    }


def _wrong_label_facts(found: JobResult) -> dict[str, Any] | None:
    """Return how many training rows have a label that is probably wrong, of how many that were judged."""
    wrong = found.wrong_labels
    return None if wrong is None else {"rows": len(wrong.suspects.rows), "judged": wrong.judged}


def _guarantee_facts(found: Tradeoff, x: str, y: str) -> dict[str, Any]:
    """Return what is guaranteed, and what was measured on the test rows."""
    return {"guarantee": found.guarantee, x: found.at[0], y: found.at[1], "note": found.note or None}


# ---- the result as text


def column_lines(features: Features, data: TrainTest, verbose: bool) -> list[str]:
    """Return the columns that the user should look at, or all with `verbose`, and the notes on reading DATA.

    offers.csv: 9 columns, 2 to check (--verbose lists all)
      price   number  "1.234,5 €"   decimal comma, € left out
      code    id      "a7-33f"      dropped: codes such as 'a7-33f', each in one row only
    """
    from kway.auto.columns import summarize_columns

    columns = summarize_columns(features, data)
    shown = [column for column in columns if verbose or column.is_surprising]
    lines = []
    if verbose and not features.is_table_:
        lines = [f"{data.name}: {columns[0].kind}, {columns[0].treatment}"]
    elif shown:
        hint = "" if verbose else f", {len(shown)} to check (--verbose lists all)"
        lines = [f"{data.name}: {count(len(columns), 'column')}{hint}", *_column_table(shown, verbose)]
    return lines + [_note(note) for note in data.notes]


def _column_table(columns: list[ColumnSummary], verbose: bool, most: int = 12, cell_width: int = 24) -> list[str]:
    """Return one line per column; without `verbose` at most `most` lines."""
    shown = columns if verbose else columns[:most]
    rows = [(c.column, c.kind, f'"{c.example}"' if c.example else "") for c in shown]
    widths = [min(cell_width, max(map(len, cells))) for cells in zip(*rows)]
    lines = []
    for column, row in zip(shown, rows):
        cells = [clipped(cell, width).ljust(width) for cell, width in zip(row, widths)]
        how = column.treatment if verbose else column.note if column.used else column.done
        lines.append("  " + "  ".join([*cells, with_flags(how)]))
    return lines + ([f"  and {len(columns) - len(shown):,} more"] if len(columns) > len(shown) else [])


def show_comparison(result: dict[str, Any], verbose: bool) -> None:
    """Print the leaks, the size of DATA, the leaderboard and the notes."""
    data, models, skipped = result["data"], result["models"], result["skipped"]
    for warning in result["warnings"]:
        say(f"[bold yellow]Possible leak:[/] {safe(_wrapped(with_flags(warning), 15))}")
    say(
        f"[bold]{safe(data['name'])}[/]: {count(data['train_rows'], 'training row')}, "
        f"{count(data['test_rows'], 'test row')}, {count(data['features'], 'feature')}, "
        f"{count(data['classes'], 'class')}"
    )
    _show_leaderboard(models, result["references"], result["metric"])
    stopped = [model for model in models if model["note"]]
    if verbose:
        for model in stopped:
            say(f"{model['model']}: {safe(model['note'])}.")
        for model, why in skipped.items():
            say(f"{model}: not run, {safe(why)}.")
    elif stopped or skipped:
        say(f"{_left_out(len(stopped), len(skipped))}; --verbose lists them.")
    for note in result["notes"]:
        if note not in data["notes"]:  # column_lines has printed those
            say(safe(_note(note)))


def _left_out(stopped: int, skipped: int) -> str:
    """Return how many families did not finish.

    >>> _left_out(7, 4), _left_out(0, 1)
    ('7 families left the race early, 4 were not run', '1 family was not run')
    """
    early = f"{count(stopped, 'family')} left the race early" if stopped else ""
    verb = "was" if skipped == 1 else "were"
    not_run = f"{skipped if stopped else count(skipped, 'family')} {verb} not run" if skipped else ""
    return ", ".join(filter(None, (early, not_run)))


def _note(text: str) -> str:
    return f"Note: {_wrapped(with_flags(text), 6)}"


def _wrapped(text: str, before: int) -> str:
    """Return a sentence in lines as wide as the terminal, to be printed after `before` characters."""
    return textwrap.fill(f"{' ' * before}{text}.", max(terminal_width(), 80), subsequent_indent="  ")[before:]


def _show_leaderboard(
    models: list[dict[str, Any]], references: list[dict[str, Any]], measure: str, wide: int = 110
) -> None:
    """Print one line per family; a terminal of fewer than `wide` characters has no columns for costs and log loss."""
    own = () if measure == "accuracy" else (measure,)
    columns = ("model", *own, "accuracy", "log loss", "folds", "setting", "fit s", "µs per row", "size")
    lines = [_leaderboard_line(m, bool(own)) for m in models]
    lines += [_leaderboard_line({**m, "model": f"({m['model']})"}, bool(own)) for m in references]
    left_out = {"log loss"} if measure == "log-loss" else set()
    if terminal_width() < wide:
        left_out |= {"log loss", "fit s", "µs per row", "size"}
    kept = [j for j, name in enumerate(columns) if name not in left_out and any(line[j] != "–" for line in lines)]
    how = "Cross-validation on the training rows" + (f", ordered by {measure}" if own else "")
    show_table(how, [columns[j] for j in kept], [[line[j] for j in kept] for line in lines], 0)
    if references:
        say("In brackets: other libraries on the same folds, for comparison. They are never chosen.")


def _leaderboard_line(model: dict[str, Any], measured: bool) -> tuple[str, ...]:
    from kway.auto.race.scoring import setting_in_words, with_spread
    from kway.auto.refit import size_in_words

    own = (with_spread(model["score"], model["score_std"], len(model["fold_scores"])),) if measured else ()
    seconds = model["predict_seconds"]
    return (
        model["model"],
        *own,
        with_spread(model["accuracy"], model["std"], len(model["fold_accuracy"])),
        format_number(model["log_loss"], 3),
        model["folds_run"],
        setting_in_words(model["setting"]),
        format_number(model["fit_seconds"], 2),
        "–" if seconds is None else f"{1e6 * seconds:.1f}",
        size_in_words(model["bytes"]),
    )


def show_winner(result: dict[str, Any]) -> None:
    """Print the winner, its test result, the baselines and the runner-up."""
    from kway.auto.race.pool import BLEND
    from kway.auto.race.scoring import MEASURES, setting_in_words

    test = result["test"]
    setting = f" ({safe(setting_in_words(result['setting']))})" if result["setting"] else ""
    loss = "" if test["log_loss"] is None else f", log loss {test['log_loss']:.4f}"
    say(f"Winner: [bold green]{result['best']}[/]{setting}, fitted again on {_fitted_rows(result)}.")
    of_winner = next(m["accuracy"] for m in result["models"] if m["model"] == result["best"])
    if result["best"] == BLEND and any(m["accuracy"] > of_winner for m in result["models"]):
        say("A blend is chosen unless its log loss is clearly higher than that of the best single family.")
    if result["verdict"]:
        say(f"[bold yellow]{result['verdict']}.[/]")
    if (metric := result["metric"]) in ("balanced", "macro-f1"):
        say(f"Test {MEASURES[metric].words}: [bold]{result['test_score']:.4f}[/].")
    say(
        f"Test accuracy: [bold]{test['accuracy']:.4f}[/] (95% interval {test['low']:.4f} to {test['high']:.4f}){loss}, "
        f"on {test['rows']:,} rows not used in training ({safe(result['data']['test_part'])})."
    )
    baselines = ", ".join(f"{BASELINES[name]} {value:.4f}" for name, value in result["baselines"].items())
    say(f"Baselines: {baselines}.")
    if result["runner_up"] is not None:
        say(_runner_up_line(result["runner_up"]))
    for line in _guarantee_lines(result):
        say(line)
    if result["levels"]:
        show_levels(result["levels"])


BASELINES = {"majority class": "always the most frequent class", "class number": "least squares on the class number"}


def _fitted_rows(result: dict[str, Any]) -> str:
    """Return which rows the model was fitted on, in words."""
    fitted = result["data"]["fitted_rows"]
    if fitted > result["data"]["train_rows"]:
        return f"{fitted:,} rows, including those that do not fit in memory"
    held_out = result["sets"] is not None or result["unknown"] is not None
    return "the training rows without the calibration split" if held_out else "all training rows"


def _guarantee_lines(result: dict[str, Any]) -> list[str]:
    """Return the guarantees with what the test rows show, and whether more rows would help."""
    lines = []
    if (sets := result["sets"]) is not None:
        lines.append(
            f"Sets: {safe(sets['guarantee'])}. On the test rows, [bold]{sets['coverage']:.4f}[/] contain the right "
            f"label, with {sets['size']:.2f} labels on average."
        )
    if (unknown := result["unknown"]) is not None:
        lines.append(
            f"Unknown: {safe(unknown['guarantee'])}. Of the test rows, [bold]{unknown['answered']:.4f}[/] are "
            f"answered, and {unknown['accuracy']:.4f} of the answers are correct."
        )
    if (wrong := result["wrong_labels"]) is not None and wrong["rows"]:
        lines.append(
            f"Labels: {wrong['rows']:,} of {wrong['judged']:,} are suspicious: wrong, or hard for the model (see the "
            "report). kway inspect lists them."
        )
    notes = [each["note"] for each in (sets, unknown) if each is not None and each["note"]]
    lines += [safe(_note(note)) for note in notes]
    if result["more_rows"]:
        lines.append(safe(result["more_rows"]))
    return lines


def _runner_up_line(runner: dict[str, Any]) -> str:
    test = runner["test"]
    verdict = "significant" if test["p_value"] < 0.05 else "not significant"
    return (
        f"Runner-up: {runner['model']} {runner['accuracy']:.4f}; the difference is {verdict} "
        f"(McNemar test, p = {test['p_value']:.2g})."
    )


def _show_files(result: dict[str, Any]) -> None:
    """Print which files were written and what to do next."""
    files = " and ".join(safe(result[what]) for what in ("model", "report") if result[what] is not None)
    if files:
        say(f"Saved {files} in {result['seconds']:.1f} s.")
    if result["model"] is not None:
        say(f"Next: kway predict {safe(result['model'])} NEW_DATA")

"""The commands `kway fit` and `kway compare`.

Their options are declared elsewhere, so that Python and all commands share them:

auto/fit_options.py       how models are chosen and fitted: models, folds, metric, sets, ...
tables/read_options.py    how DATA is read: target, group, sep, types, ...
this file                 the outputs of `kway fit`, the test file, and --verbose

fit_output.py prints the results, as text or as JSON.
"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kway.auto.fit_options import FitOptions
from kway.cli.fit_output import column_lines, comparison_facts, fit_facts, show_comparison, show_files, show_winner
from kway.cli.options import (
    AddressOption,
    ClusterOption,
    DataArgument,
    ForceOption,
    JsonOption,
    on_cluster,
    with_options,
)
from kway.cli.output import emit_json, live_view, say, say_note
from kway.cli.warmup import announce_compilation
from kway.errors import UsageError
from kway.progress import portion, stage
from kway.tables.read_options import ReadOptions

if TYPE_CHECKING:
    from kway.auto.job import JobResult
    from kway.auto.multilabel import MultilabelResult

FiguresOption = Annotated[
    Path | None,
    typer.Option(
        "--figures",
        metavar="FOLDER",
        help="Folder in which to save the figures of the report as SVG and PNG files. By default they are not saved.",
    ),
]
TestOption = Annotated[
    str | None,
    typer.Option(
        "--test",
        metavar="FILE",
        help="File with the test rows. By default, the test rows of the dataset if it has some, else a fifth of DATA "
        "(at most 50,000 rows).",
    ),
]
VerboseOption = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", metavar="", help="Also list every column, and say why a family was stopped early or not run."
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
    """Compare families of classifiers on DATA by cross-validation.

    This writes no files and does not use the test rows.

    A family is one kind of classifier, such as softmax or neighbors, together
    with the settings that kway tries for it. The families are listed below.

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
    result = comparison_facts(chosen, time.perf_counter() - started)
    if json:
        emit_json(result)
        return
    show_comparison(result, verbose)
    say(f"Winner: [bold green]{result['best']}[/]. Next: kway fit with the same options tests it and saves it.")


@with_options
def fit(
    data: DataArgument,
    reading: ReadOptions,
    options: FitOptions,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Model file to write.")] = Path("model.kway"),
    report: Annotated[Path, typer.Option("--report", metavar="FILE", help="HTML report to write.")] = Path(
        "report.html"
    ),
    figures: FiguresOption = None,
    test: TestOption = None,
    cluster: ClusterOption = False,
    address: AddressOption = None,
    force: ForceOption = False,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> None:
    """Find the best classifier for DATA, test it, save it and write a report.

    kway sets test rows aside, compares families of classifiers on the other
    rows by cross-validation, and blends the best ones, unless a test shows that
    the best single family is better. The final model is scored once, on the test rows.

    A family is one kind of classifier, such as softmax or neighbors, together
    with the settings that kway tries for it. The families are listed below.

    Example: kway fit offers.csv --target kind
    """
    _check_outputs(
        out, report, figures, {"DATA": data, "--test": test, "--embed": options.embed, "--costs": options.costs}, force
    )
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
            out = checkpoint.unfinished_path()
        failures = write_outputs(found, out, report, figures, reading)
        if not failures and not found.interrupted:
            checkpoint.finish()
    _finish(result, failures, out, report, json, started)


def _fit_label_sets(
    data: str, reading: ReadOptions, options: FitOptions, test: str | None, out: Path, report: Path, json: bool
) -> None:
    """Run the job for several labels per row, and print and write its results."""
    from kway.auto.multilabel import read_label_sets, run_multilabel
    from kway.cli.multilabel import multilabel_facts, show_multilabel

    started = time.perf_counter()
    with live_view():
        announce_compilation()
        found = run_multilabel(read_label_sets(data, reading, options, test), reading, options, started)
    if not json:
        for note in found.data.notes:
            say_note(note)
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
        show_files(result)
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
    """Write the model file and the report; return the errors by "model" or "report". No file is left half-written."""
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

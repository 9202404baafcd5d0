"""`kway fit DATA --target COL`: the main job: compare, choose, calibrate, test, save, report."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kway.auto.options import FitOptions
from kway.cli.compare import column_lines, data_facts, show_comparison
from kway.cli.options import (
    AddressOption,
    ClusterOption,
    DataArgument,
    ForceOption,
    JsonOption,
    on_cluster,
    with_options,
)
from kway.cli.output import emit_json, safe, say
from kway.cli.progress import live
from kway.progress import portion, stage
from kway.tables.options import ReadOptions

if TYPE_CHECKING:
    from kway.auto.calibration import Tradeoff
    from kway.auto.job import JobResult

_BASELINES = {"class number": " (least squares on the class number, a weak baseline)"}


@with_options
def fit(
    data: DataArgument,
    reading: ReadOptions,
    options: FitOptions,
    out: Annotated[Path, typer.Option("--out", "-o", help="The model file to write.")] = Path("model.kway"),
    report: Annotated[Path, typer.Option("--report", help="The page to write.")] = Path("report.html"),
    figures: Annotated[Path | None, typer.Option("--figures", help="Folder for each figure as svg and png.")] = None,
    test: Annotated[str | None, typer.Option("--test", help="File to test on; else a fifth of the rows.")] = None,
    cluster: ClusterOption = False,
    address: AddressOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Compare classifiers on DATA, keep the best, test it once on untouched rows, save it and write a report."""
    _check_outputs(out, report, figures, {"DATA": data, "--test": test, "--embed": options.embed}, force)
    from kway.auto.job import run_job
    from kway.auto.train_test import read_train_test

    started = time.perf_counter()
    with live() as tell:
        rows = read_train_test(data, reading, test, options.seed)
        listed = " (the report lists all)"
        on_features = None if json else lambda features: tell(column_lines(features, rows, listed))
        with on_cluster(cluster, address):
            found = run_job(rows, options, started, on_features)
    result = fit_facts(found, time.perf_counter() - started)
    if not json:
        show_fit(result)
    with live("writing the report", time.perf_counter() - started), portion(0.92, 1.0):
        failures = write_outputs(found, out, report, figures, reading)
    written = {name: None if name in failures else str(place) for name, place in (("model", out), ("report", report))}
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
    from kway.tables.outputs import (
        Output,
        check_output_folder,
        check_places,
        figure_outputs,
        is_model,
        is_report,
        refuse_as_folder,
    )

    outputs = [Output("--out", out, "model", is_model), Output("--report", report, "report", is_report)]
    if figures is not None:
        from kway.report.pictures import PICTURES

        refuse_as_folder("--figures", figures, outputs)
        check_output_folder("--figures", figures)
        outputs += figure_outputs("--figures", figures, list(PICTURES))
    check_places(outputs, inputs, force)


def write_outputs(
    found: JobResult, out: Path, report: Path, figures: Path | None, reading: ReadOptions
) -> dict[str, str]:
    """Write the model file and the page, each complete or not at all; why one could not be written, by its name."""
    from kway.report.page import write_page

    failures = {}
    try:
        with stage("saving the model"):
            found.save(out, reading.target, reading.id, force=True)  # its place was checked before the work
    except OSError as error:
        failures["model"] = f"{out} cannot be written: {error.strerror or error}"
    try:
        with stage("writing the report"):
            write_page(report, found, shlex.join(["kway", *sys.argv[1:]]), figures)
    except OSError as error:
        failures["report"] = f"{error.filename or report} cannot be written: {error.strerror or error}"
    return failures


def fit_facts(found: JobResult, seconds: float) -> dict[str, Any]:
    """What `--json` prints, without the files."""
    runner, comparison = found.runner_up, found.comparison
    data = data_facts(found.data, found.X.shape[1], len(found.model.classes_))
    return {
        "best": found.best.model,
        "setting": dict(found.best.setting),
        "test": vars(found.evaluation.scores),
        "models": [row.record() for row in found.leaderboard],
        "references": [row.record() for row in comparison.references],
        "metric": comparison.measure.name,
        "sets": None if found.sets is None else _point(found.sets, "size", "coverage"),
        "unknown": None if found.unknown is None else _point(found.unknown, "answered", "accuracy"),
        "more_rows": None if found.curve is None else str(found.curve),
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


def _point(found: Tradeoff, x: str, y: str) -> dict[str, Any]:
    """What is guaranteed, and what the test rows show."""
    return {"guarantee": found.guarantee, x: found.at[0], y: found.at[1]}


def show_fit(result: dict[str, Any]) -> None:
    """Print the leaderboard and the test."""
    show_comparison(result)
    test = result["test"]
    loss = "" if test["log_loss"] is None else f", log loss {test['log_loss']:.4f}"
    say(f"Best: [bold green]{result['best']}[/]{_setting(result)}, refitted on {_learned_from(result)}.")
    say(
        f"Test accuracy [bold]{test['accuracy']:.4f}[/] (95 % interval {test['low']:.4f} to {test['high']:.4f}){loss} "
        f"on {test['rows']:,} untouched rows ({safe(result['data']['test_part'])})."
    )
    for line in _guarantee_lines(result):
        say(line)
    baselines = (f"{safe(name)} {value:.4f}{_BASELINES.get(name, '')}" for name, value in result["baselines"].items())
    say(f"Beside it: {', '.join(baselines)}.")
    if result["runner_up"] is not None:
        say(_runner_up_line(result["runner_up"]))


def _setting(result: dict[str, Any]) -> str:
    from kway.auto.race.scoring import setting_in_words

    return f" ({safe(setting_in_words(result['setting']))})" if result["setting"] else ""


def _learned_from(result: dict[str, Any]) -> str:
    """The rows that the model learned from."""
    fitted = result["data"]["fitted_rows"]
    if fitted > result["data"]["train_rows"]:
        return f"{fitted:,} rows, those beyond memory too"
    held = result["sets"] is not None or result["unknown"] is not None
    return "the train rows but those held out for the promise" if held else "all train rows"


def _guarantee_lines(result: dict[str, Any]) -> list[str]:
    """What is guaranteed of sets and of "unknown", how the test rows came out, and whether more rows would help."""
    lines = []
    if (sets := result["sets"]) is not None:
        lines.append(
            f"Sets: {safe(sets['guarantee'])}. On the test rows [bold]{sets['coverage']:.4f}[/] hold it, with "
            f"{sets['size']:.2f} labels on average."
        )
    if (unknown := result["unknown"]) is not None:
        lines.append(
            f"Unknown: {safe(unknown['guarantee'])}. Of the test rows [bold]{unknown['answered']:.4f}[/] are answered, "
            f"{unknown['accuracy']:.4f} of them right."
        )
    if result["more_rows"]:
        lines.append(safe(result["more_rows"]))
    return lines


def _runner_up_line(runner: dict[str, Any]) -> str:
    test = runner["test"]
    verdict = "more than luck" if test["p_value"] < 0.05 else "no more than luck could give"
    return (
        f"Runner-up {runner['model']}: {runner['accuracy']:.4f}; only one of the two is right on "
        f"{test['only_first']} + {test['only_second']} rows, {verdict} (McNemar, p = {test['p_value']:.2g})."
    )


def _show_files(result: dict[str, Any]) -> None:
    """Print which files were written."""
    files = " and ".join(safe(result[what]) for what in ("model", "report") if result[what] is not None)
    after = f" Next: kway predict {safe(result['model'])} DATA" if result["model"] is not None else ""
    if files:
        say(f"Saved {files} ({result['seconds']:.1f} s in all).{after}")

"""`kway fit DATA --target COL`: compare, choose, calibrate, test, save, report; `kway compare` stops at the choice."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kway import light_imports
from kway.cli.choice_options import (
    AlsoOption,
    ClassWeightOption,
    DeviceOption,
    FoldsOption,
    MetricOption,
    RepeatsOption,
    SetsOption,
    UnknownOption,
    check_choosing,
    check_shares,
    references,
)
from kway.cli.cluster_options import AddressOption, ClusterOption, over_cluster
from kway.cli.columns_said import column_lines
from kway.cli.models import ALL_COLUMNS, MODELS, pick_models
from kway.cli.options import DataArgument, ForceOption, JsonOption, reads_data
from kway.cli.output import emit_json
from kway.cli.progress import live, seconds
from kway.cli.summary import show_comparison, show_fit, show_saved
from kway.data.outputs.output_paths import Output, check_output_folder, check_places, figure_outputs, refuse_as_folder
from kway.data.outputs.own_files import is_model, is_report
from kway.progress import portion, stage

if TYPE_CHECKING:
    from kway.data.reading import ReadOptions
    from kway.report.picture_workers import Drawing
    from kway.select.job import JobResult
    from kway.select.promises import Tradeoff
    from kway.select.train_test import Parts
    from kway.select.wishes import Wishes

MODEL_HELP = f"{', '.join(MODELS)}, several with commas between, or {ALL_COLUMNS} but the last."

ModelOption = Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)]
AlphaOption = Annotated[float | None, typer.Option("--alpha", min=0.0, help="Weight of the penalty; else chosen.")]
BudgetOption = Annotated[
    str | None, typer.Option("--budget", help="Time for the whole job: 60s, 2m, 1h.", metavar="TIME")
]
GroupOption = Annotated[str | None, typer.Option("--group", help="Column whose groups are never split.", metavar="COL")]
OrderOption = Annotated[str | None, typer.Option("--order", help="Column of time: the last rows test.", metavar="COL")]
EmbedOption = Annotated[str | None, typer.Option("--embed", help="Sentence-transformers model for text or images.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of everything drawn at random.")]


@reads_data
def fit(
    data: DataArgument,
    reading: ReadOptions,
    model: ModelOption = ALL_COLUMNS,
    out: Annotated[Path, typer.Option("--out", "-o", help="The model file to write.")] = Path("model.kway"),
    report: Annotated[Path, typer.Option("--report", help="The page to write.")] = Path("report.html"),
    figures: Annotated[Path | None, typer.Option("--figures", help="Folder for each figure as svg and png.")] = None,
    test: Annotated[str | None, typer.Option("--test", help="File to test on; else a fifth of the rows.")] = None,
    alpha: AlphaOption = None,
    budget: BudgetOption = None,
    group: GroupOption = None,
    order: OrderOption = None,
    embed: EmbedOption = None,
    metric: MetricOption = "accuracy",
    class_weight: ClassWeightOption = None,
    folds: FoldsOption = 5,
    repeats: RepeatsOption = 1,
    also: AlsoOption = None,
    sets: SetsOption = None,
    unknown: UnknownOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    cluster: ClusterOption = False,
    address: AddressOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Compare classifiers on DATA, keep the best, test it once on untouched rows, save it and write a report."""
    check_choosing(metric, class_weight, device)
    check_shares(sets, unknown)
    _check_fit_places(out, report, figures, {"DATA": data, "--test": test, "--embed": embed}, force)
    wishes = _wishes(model, alpha, budget, seed, embed, metric, class_weight, folds, repeats, also)
    wishes = replace(wishes, sets=sets, unknown=unknown, device=device)
    from kway.report.picture_workers import begin_drawing

    drawing = begin_drawing(figures)  # before the rest is loaded: meanwhile, its copies load what draws
    with light_imports.uncollected():
        from kway.select.job import run_job
        from kway.select.train_test import read_parts

    started = time.perf_counter()
    with live() as tell:
        parts = read_parts(data, replace(reading, group=group, order=order), test, seed)
        with over_cluster(cluster, address):
            seen = None if json else lambda f: tell(column_lines(f, parts, listed=" (the report lists all)"))
            found = run_job(parts, wishes, started, seen, drawing.begin)
    result = fit_facts(found, time.perf_counter() - started)
    if not json:
        show_fit(result)
    with live("writing the report", time.perf_counter() - started), portion(0.92, 1.0):
        failures = write_outputs(found, wishes, out, report, drawing, reading)
    written = {name: None if name in failures else str(place) for name, place in (("model", out), ("report", report))}
    result |= {"seconds": time.perf_counter() - started, **written}
    if json:
        emit_json(result)
    else:
        show_saved(result)
    for failure in failures.values():
        print(f"error: {failure}", file=sys.stderr)
    if failures:
        raise typer.Exit(1)


@reads_data
def compare(
    data: DataArgument,
    reading: ReadOptions,
    model: ModelOption = ALL_COLUMNS,
    alpha: AlphaOption = None,
    budget: BudgetOption = None,
    group: GroupOption = None,
    order: OrderOption = None,
    embed: EmbedOption = None,
    metric: MetricOption = "accuracy",
    class_weight: ClassWeightOption = None,
    folds: FoldsOption = 5,
    repeats: RepeatsOption = 1,
    also: AlsoOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    cluster: ClusterOption = False,
    address: AddressOption = None,
    json: JsonOption = False,
) -> None:
    """Compare classifiers on DATA by cross-validation; nothing is saved, the test rows stay untouched."""
    check_choosing(metric, class_weight, device)
    wishes = _wishes(model, alpha, budget, seed, embed, metric, class_weight, folds, repeats, also)
    wishes = replace(wishes, device=device)
    from kway.select.contest.clock import Clock
    from kway.select.job import compare_parts
    from kway.select.train_test import read_parts

    started = time.perf_counter()
    with live() as tell:
        parts = read_parts(data, replace(reading, group=group, order=order), seed=seed)
        seen = None if json else lambda f: tell(column_lines(f, parts, listed=""))
        with over_cluster(cluster, address):
            chosen = compare_parts(parts, wishes, Clock(wishes.budget, started), seen)
    found = chosen.comparison
    result = {
        "best": found.best.model,
        "models": found.records(),
        "references": [line.record() for line in found.references],
        "metric": found.measure.name,
        "finished": found.finished,
        "idle": dict(found.idle),
        "notes": list(chosen.notes),
        "seconds": time.perf_counter() - started,
        "data": _about_parts(parts, chosen.whole.X.shape[1], len(found.classes)),
    }
    if json:
        emit_json(result)
    else:
        show_comparison(result)


def _check_fit_places(
    out: Path, report: Path, figures: Path | None, inputs: dict[str, str | Path | None], force: bool
) -> None:
    outputs = [Output("--out", out, "model", is_model), Output("--report", report, "report", is_report)]
    if figures is not None:
        from kway.report.picture_workers import NAMES

        refuse_as_folder("--figures", figures, outputs)
        check_output_folder("--figures", figures)
        outputs += figure_outputs("--figures", figures, NAMES)
    check_places(outputs, inputs, force)


def write_outputs(
    found: JobResult, wishes: Wishes, out: Path, report: Path, drawing: Drawing, reading: ReadOptions
) -> dict[str, str]:
    """The model file and the page, each complete or absent; what could not be written, by what it was, and why."""
    from kway.report.page import write_page
    from kway.select.saved_winner import save_model

    failures = {}
    try:
        with stage("saving the model"):
            save_model(found, out, reading.target, reading.id, force=True)  # its place was tested before the work
    except OSError as error:
        failures["model"] = f"{out} cannot be written: {error.strerror or error}"
    try:
        with stage("writing the report"):
            write_page(report, found, wishes, _command(), drawing)
    except OSError as error:
        failures["report"] = f"{error.filename or report} cannot be written: {error.strerror or error}"
    return failures


def fit_facts(found: JobResult, seconds: float) -> dict[str, Any]:
    """What `--json` prints, but for the files."""
    runner = found.runner_up
    return {
        "best": found.best.standing.model,
        "setting": dict(found.best.standing.setting),
        "test": vars(found.evaluation.scores),
        "models": [line.record() for line in found.lines],
        "references": [line.record() for line in found.comparison.references],
        "metric": found.comparison.measure.name,
        "sets": None if found.sets is None else _kept(found.sets, "size", "coverage"),
        "unknown": None if found.unknown is None else _kept(found.unknown, "answered", "accuracy"),
        "more_rows": None if found.curve is None else str(found.curve),
        "baselines": found.baselines,
        "runner_up": None if runner is None else {**vars(runner), "test": vars(runner.test)},
        "temperature": found.temperature,
        "finished": found.comparison.finished,
        "idle": dict(found.comparison.idle),
        "notes": list(found.notes),
        "seconds": seconds,
        "stages": found.seconds,
        "data": _about_parts(found.parts, found.X.shape[1], len(found.model.classes_))
        | {"fitted_rows": found.fitted_rows},
    }


def _kept(found: Tradeoff, x: str, y: str) -> dict[str, Any]:
    """What was promised, and where the test rows came out."""
    return {"promise": found.promise, x: found.at[0], y: found.at[1]}


def _about_parts(parts: Parts, n_features: int, n_classes: int) -> dict[str, Any]:
    return {
        "name": parts.name,
        "train_rows": parts.n,
        "test_rows": len(parts.test_y),
        "test_part": parts.how,
        "features": n_features,
        "classes": n_classes,
    }


def _wishes(
    model: str, alpha: float | None, budget: str | None, seed: int, embed: str | None, metric: str,
    class_weight: str | None, folds: int, repeats: int, also: list[str] | None,
) -> Wishes:  # fmt: skip
    models, limit = pick_models(model), seconds(budget)
    from kway.select.wishes import Wishes

    return Wishes(models, alpha, limit, seed, folds, embed, metric, class_weight, repeats, references(also))


def _command() -> str:
    import shlex

    return shlex.join(["kway", *sys.argv[1:]])

"""`kway fit DATA --target COL`: compare, choose, calibrate, test, save, report; `kway compare` stops at the choice."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kway.cli.choosing import (
    AlsoOption,
    ClassWeightOption,
    FoldsOption,
    MetricOption,
    RepeatsOption,
    SetsOption,
    UnknownOption,
    references,
)
from kway.cli.models import ALL, MODELS, pick_models
from kway.cli.options import DataArgument, JsonOption, reads_data
from kway.cli.output import emit_json
from kway.cli.progress import live, seconds
from kway.cli.summary import show_comparison, show_fit

if TYPE_CHECKING:
    from kway.data.reading import ReadOptions
    from kway.select.job import JobResult, Wishes
    from kway.select.promises import Tradeoff
    from kway.select.train_test import Parts

MODEL_HELP = f"{', '.join(MODELS)}, several with commas between, or {ALL} but the last."

ModelOption = Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)]
AlphaOption = Annotated[float | None, typer.Option("--alpha", min=0.0, help="Weight of the penalty; else chosen.")]
BudgetOption = Annotated[
    str | None, typer.Option("--budget", help="Time for the whole job: 60s, 2m, 1h.", metavar="TIME")
]
GroupOption = Annotated[str | None, typer.Option("--group", help="Column whose groups are never split.", metavar="COL")]
OrderOption = Annotated[str | None, typer.Option("--order", help="Column of time: the last rows test.", metavar="COL")]
EmbedOption = Annotated[str | None, typer.Option("--embed", help="Sentence-transformers model for text columns.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of everything drawn at random.")]


@reads_data
def fit(
    data: DataArgument,
    reading: ReadOptions,
    model: ModelOption = ALL,
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
    json: JsonOption = False,
) -> None:
    """Compare classifiers on DATA, keep the best, test it once on untouched rows, save it and write a report."""
    from kway.data.sources.writing import refuse_missing_folder
    from kway.progress import stage, within
    from kway.select.job import run_job
    from kway.select.train_test import read_parts

    started = time.perf_counter()
    for path in (out, report):
        refuse_missing_folder(path)
    wishes = replace(
        _wishes(model, alpha, budget, seed, embed, metric, class_weight, folds, repeats, also),
        sets=sets,
        unknown=unknown,
    )
    with live():
        found = run_job(read_parts(data, replace(reading, group=group, order=order), test, seed), wishes, started)
        with within(0.92, 1.0), stage("writing the report"):
            write_outputs(found, wishes, out, report, figures, reading.target)
    result = fit_facts(found, out, report, time.perf_counter() - started)
    if json:
        emit_json(result)
    else:
        show_fit(result)


@reads_data
def compare(
    data: DataArgument,
    reading: ReadOptions,
    model: ModelOption = ALL,
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
    json: JsonOption = False,
) -> None:
    """Compare classifiers on DATA by cross-validation; nothing is saved, the test rows stay untouched."""
    from kway.select.clock import Clock
    from kway.select.job import compare_parts
    from kway.select.train_test import read_parts

    started = time.perf_counter()
    wishes = _wishes(model, alpha, budget, seed, embed, metric, class_weight, folds, repeats, also)
    with live():
        parts = read_parts(data, replace(reading, group=group, order=order), seed=seed)
        chosen = compare_parts(parts, wishes, Clock(wishes.budget, started))
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


def write_outputs(
    found: JobResult, wishes: Wishes, out: Path, report: Path, figures: Path | None, target: str | None
) -> None:
    """The model file and the page; each appears only when it is complete."""
    from kway.report.page import write_page
    from kway.select.saved import save_model

    save_model(found, out, target)
    write_page(report, found, wishes, _command(), figures)


def fit_facts(found: JobResult, out: Path, report: Path, seconds: float) -> dict[str, Any]:
    """What `--json` prints."""
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
        "model": str(out),
        "report": str(report),
        "data": _about_parts(found.parts, found.X.shape[1], len(found.model.classes_)),
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
    from kway.select.job import Wishes
    from kway.select.measures import pick_measure

    return Wishes(
        pick_models(model), alpha, seconds(budget), seed, folds, embed, pick_measure(metric).name, class_weight,
        repeats, references(also),
    )  # fmt: skip


def _command() -> str:
    import shlex

    return shlex.join(["kway", *sys.argv[1:]])

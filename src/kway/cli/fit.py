"""`kway fit DATA --target COL`: train, choose, test, save."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kway.cli.models import ALL, MODELS, pick_models
from kway.cli.output import Json, Target, emit_json, number, safe, say, show_table

if TYPE_CHECKING:
    from kway.cli.job import Fitted
    from kway.data.dataset import Dataset

MODEL_HELP = f"{', '.join(MODELS)}, or {ALL}: every linear one, the best kept."


def fit(
    data: Annotated[str, typer.Argument(help="A file (csv, csv.gz, parquet, npz, libsvm) or a known set.")],
    target: Target = None,
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)] = ALL,
    out: Annotated[Path, typer.Option("--out", "-o", help="The model file to write.")] = Path("model.kway"),
    test: Annotated[str | None, typer.Option("--test", help="File to test on; else a fifth of the rows.")] = None,
    alpha: Annotated[float | None, typer.Option("--alpha", min=0.0, help="Weight of the penalty; else chosen.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of everything drawn at random.")] = 0,
    json: Json = False,
) -> None:
    """Fit models to DATA, keep the best, test it once on untouched rows and save it."""
    from kway.cli.job import fit_best
    from kway.data.writing import refuse_missing_folder

    started = time.perf_counter()
    names = pick_models(model)
    refuse_missing_folder(out)
    rows = read(data, target, test, seed)
    fitted = fit_best(names, rows, alpha, seed)
    save(fitted, rows, out, target)
    result = summary(fitted, rows, out, time.perf_counter() - started)
    if json:
        emit_json(result)
    else:
        show(result)


def read(data: str, target: str | None, test: str | None, seed: int) -> Dataset:
    """DATA with a test part: the file given, the set's own, or a stratified fifth of the rows."""
    from dataclasses import replace

    from kway.data import source

    rows = source.labelled(source.read(data, target), target)
    if test is None:
        return rows.split(seed)
    assert rows.y_train is not None
    text = rows.y_train.dtype.kind in "UO"
    other = source.read(test, target, rows.feature_names or None, rows.x_train.shape[1], text_labels=text)
    other = source.labelled(other, target)
    return replace(rows, x_test=other.x_train, y_test=other.y_train)


def save(fitted: Fitted, rows: Dataset, out: Path, target: str | None) -> None:
    """The model file, with the names of the columns so that `predict` finds them in any order."""
    import numpy as np

    from kway import store

    if rows.feature_names:
        fitted.estimator.feature_names_in_ = np.asarray(rows.feature_names, dtype=object)
    notes = {"data": rows.name, "target": target, "model": fitted.best, "test_accuracy": fitted.test.accuracy}
    store.save(fitted.estimator, out, notes=notes)


def summary(fitted: Fitted, rows: Dataset, out: Path, seconds: float) -> dict[str, Any]:
    """What `--json` prints."""
    import dataclasses

    return {
        "best": fitted.best,
        "test": dataclasses.asdict(fitted.test),
        "models": [dataclasses.asdict(t) for t in fitted.trials],
        "compared": fitted.compared,
        "seconds": seconds,
        "model": str(out),
        "data": {
            "name": rows.name,
            "train_rows": rows.x_train.shape[0],
            "test_rows": rows.x_test.shape[0],
            "features": rows.x_train.shape[1],
            "classes": len(fitted.estimator.classes_),
        },
    }


def show(result: dict[str, Any]) -> None:
    """The same for people."""
    about, trials, test = result["data"], result["models"], result["test"]
    say(
        f"[bold]{safe(about['name'])}[/]: {about['train_rows']:,} train and {about['test_rows']:,} test rows, "
        f"{about['features']:,} features, {about['classes']:,} classes"
    )
    ordered = sorted(trials, key=lambda t: -1.0 if t["accuracy"] is None else -t["accuracy"])
    best = next(i for i, t in enumerate(ordered) if t["model"] == result["best"])
    show_table(
        "Models, on a fifth of the train rows held out" if result["compared"] else "Model, on the test rows",
        ("model", "accuracy", "log loss", "alpha", "fit seconds"),
        [_line(t) for t in ordered],
        best if len(trials) > 1 else None,
    )
    for t in trials:
        if t["problem"]:
            say(f"{t['model']} was left out: {safe(t['problem'])}")
    loss = "" if test["log_loss"] is None else f", log loss {test['log_loss']:.4f}"
    if result["compared"]:
        say(f"Best: [bold green]{result['best']}[/], refitted on all train rows.")
    say(f"Test accuracy [bold]{test['accuracy']:.4f}[/]{loss} on {test['rows']:,} untouched rows.")
    out = safe(result["model"])
    say(f"Saved {out} ({result['seconds']:.1f} s in all). Next: kway predict {out} DATA")


def _line(trial: dict[str, Any]) -> tuple[str, ...]:
    alpha = "–" if trial["alpha"] is None else f"{trial['alpha']:.2g}"
    return trial["model"], number(trial["accuracy"]), number(trial["log_loss"]), alpha, number(trial["seconds"], 2)

"""`kway compare DATA --target COL`: families compared by cross-validation; nothing is saved."""

from __future__ import annotations

import shutil
import textwrap
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from kway.auto.options import FitOptions
from kway.cli.options import (
    AddressOption,
    ClusterOption,
    DataArgument,
    JsonOption,
    in_command_words,
    on_cluster,
    with_options,
)
from kway.cli.output import emit_json, safe, say, show_table, shown_number, width
from kway.cli.progress import live
from kway.tables.options import ReadOptions
from kway.text_tables import clipped

if TYPE_CHECKING:
    from kway.auto.train_test import TrainTest
    from kway.tables.features.features import Features

_WIDE = 110  # characters of a terminal that shows every column of the leaderboard
_MOST_COLUMNS = 12  # columns of DATA that are listed
_LONGEST_NAME = 24  # characters of a column's name


@with_options
def compare(
    data: DataArgument,
    reading: ReadOptions,
    options: FitOptions,
    cluster: ClusterOption = False,
    address: AddressOption = None,
    json: JsonOption = False,
) -> None:
    """Compare classifiers on DATA by cross-validation; nothing is saved, the test rows stay untouched."""
    from kway.auto.compare_data import compare_data
    from kway.auto.race.clock import Clock
    from kway.auto.train_test import read_train_test

    started = time.perf_counter()
    with live() as tell:
        rows = read_train_test(data, reading, seed=options.seed)
        on_features = None if json else lambda features: tell(column_lines(features, rows, listed=""))
        with on_cluster(cluster, address):
            chosen = compare_data(rows, options, Clock(options.budget, started), on_features)
    found = chosen.comparison
    result = {
        "best": found.best.model,
        "models": found.records(),
        "references": [row.record() for row in found.references],
        "metric": found.measure.name,
        "finished": found.finished,
        "skipped": dict(found.skipped),
        "notes": list(chosen.notes),
        "seconds": time.perf_counter() - started,
        "data": data_facts(rows, chosen.views[0].X.shape[1], len(found.classes)),
    }
    if json:
        emit_json(result)
    else:
        show_comparison(result)


def data_facts(data: TrainTest, n_features: int, n_classes: int) -> dict[str, Any]:
    """DATA in numbers."""
    return {
        "name": data.name,
        "train_rows": data.n,
        "test_rows": len(data.test_y),
        "test_part": data.test_part,
        "features": n_features,
        "classes": n_classes,
    }


def show_comparison(result: dict[str, Any]) -> None:
    """Print what the data is, the leaderboard and the notes."""
    about, models = result["data"], result["models"]
    say(
        f"[bold]{safe(about['name'])}[/]: {about['train_rows']:,} train and {about['test_rows']:,} test rows, "
        f"{about['features']:,} feature{'' if about['features'] == 1 else 's'}, {about['classes']:,} classes"
    )
    _show_leaderboard(models, result["references"], result["metric"])
    for model in models:
        if model["note"]:
            say(f"{model['model']}: {safe(model['note'])}.")
    for model, why in result["skipped"].items():
        say(f"{model}: not run, {safe(why)}.")
    for note in result["notes"]:
        say(textwrap.fill(f"Note: {safe(in_command_words(note))}.", 80, subsequent_indent="  "))


def _show_leaderboard(models: list[dict[str, Any]], references: list[dict[str, Any]], measure: str) -> None:
    own = () if measure == "accuracy" else (measure,)
    columns: tuple[str, ...] = ("model", *own, "accuracy", "log loss", "folds", "setting", "fit s", "µs a row", "size")
    lines = [_leaderboard_line(m, bool(own)) for m in models]
    lines += [_leaderboard_line({**m, "model": f"({m['model']})"}, bool(own)) for m in references]
    narrow = width() < _WIDE
    if narrow or measure == "log-loss":  # first the costs go, then, beside another measure, the log loss
        shown = [j for j, name in enumerate(columns[:-3] if narrow else columns) if not own or name != "log loss"]
        columns, lines = tuple(columns[j] for j in shown), [tuple(line[j] for j in shown) for line in lines]
    how = "by cross-validation on train rows" + (f", chosen by {measure}" if own else "")
    show_table(f"Models, {how}", columns, lines, 0)
    if references:
        say("In brackets: not kway's, on the same folds for comparison; not saved.")


def _leaderboard_line(model: dict[str, Any], measured: bool) -> tuple[str, ...]:
    from kway.auto.race.scoring import setting_in_words, with_spread
    from kway.auto.refit import size_in_words

    own = (with_spread(model["score"], model["score_std"], len(model["fold_scores"])),) if measured else ()
    seconds = model["predict_seconds"]
    return (
        model["model"],
        *own,
        with_spread(model["accuracy"], model["std"], len(model["fold_accuracy"])),
        shown_number(model["log_loss"], 3),
        model["folds_run"],
        setting_in_words(model["setting"]),
        shown_number(model["fit_seconds"], 2),
        "–" if seconds is None else f"{1e6 * seconds:.1f}",
        size_in_words(model["bytes"]),
    )


def column_lines(features: Features, data: TrainTest, listed: str) -> list[str]:
    """How each column of DATA was read, an example and what it became; one line per column, the first few of many.

    5 columns of offers.csv as they were read:
      price   number    "1.234,5 €"   decimal comma, € left out; standardized (mean 0, standard deviation 1)
      code    id        "a7-33f"      dropped: codes such as 'a7-33f', each in one row only: they name the rows

    `listed` says where the other columns are listed.
    """
    from kway.report.columns import columns_read

    read = columns_read(features, data)
    notes = [f"  note: {in_command_words(note)}" for note in data.notes]
    if not features.is_table_:
        return [f"{data.name} as it was read: {read[0].kind}, {read[0].done}", *notes]
    many = "1 column" if len(read) == 1 else f"{len(read):,} columns"
    lines = [f"{many} of {data.name} as {'it was' if len(read) == 1 else 'they were'} read:"]
    shown = [
        (c.column, c.kind, f'"{c.example}"' if c.example else "", in_command_words(c.done))
        for c in read[:_MOST_COLUMNS]
    ]
    widths = [min(_LONGEST_NAME, max(len(row[j]) for row in shown)) for j in range(3)]
    edge = shutil.get_terminal_size((120, 24)).columns
    for row in shown:
        cells = [clipped(cell, width).ljust(width) for cell, width in zip(row, widths)]
        lines.append(clipped("  " + "  ".join([*cells, row[3]]), edge))
    rest = Counter(c.kind for c in read[_MOST_COLUMNS:])
    if rest:
        counted = ", ".join(f"{n:,} {kind}" for kind, n in rest.most_common())
        lines.append(f"  and {sum(rest.values()):,} more: {counted}{listed}")
    return lines + notes

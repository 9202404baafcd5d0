"""The results of `kway fit` and `kway compare`, as JSON values and as text.

The text has this order: possible leaks, the size of DATA, the leaderboard, notes, the winner with its test result and
the baselines, the files that were written, and the next command. Columns and families that need no attention are listed
only with --verbose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kway.cli.options import with_flags
from kway.cli.output import format_number, note_text, safe, say, say_note, show_table, terminal_width, wrapped
from kway.cli.saved_model import show_levels
from kway.text_tables import clipped, count

if TYPE_CHECKING:
    from kway.auto.calibration import Tradeoff
    from kway.auto.columns import ColumnSummary
    from kway.auto.compare_data import DataComparison
    from kway.auto.job import JobResult
    from kway.auto.leaks import Leak
    from kway.auto.race.compare import Comparison
    from kway.auto.train_test import TrainTest
    from kway.tables.features.features import Features


def comparison_facts(chosen: DataComparison, seconds: float) -> dict[str, Any]:
    """Return what `kway compare --json` prints."""
    comparison = chosen.comparison
    return {
        **_race_facts(comparison, chosen.leaks),
        "weight": chosen.data.weight,
        "models": comparison.records(),
        "notes": list(chosen.notes),
        "seconds": seconds,
        "data": data_facts(chosen.data, chosen.views[""].X.shape[1], len(comparison.classes)),
    }


def _race_facts(comparison: Comparison, leaks: tuple[Leak, ...]) -> dict[str, Any]:
    """Return what the JSON objects of both commands begin with."""
    return {
        "leaks": [leak.record() for leak in leaks],
        "warnings": [str(leak) for leak in leaks if leak.warns],
        "best": comparison.best.model,
        "references": [row.record() for row in comparison.references],
        "metric": comparison.measure.name,
        "finished": comparison.finished,
        "skipped": dict(comparison.skipped),
    }


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


def fit_facts(result: JobResult, seconds: float) -> dict[str, Any]:
    """Return what `kway fit --json` prints, without the names of the files."""
    from kway.auto.evaluation import measured, verdict
    from kway.auto.hierarchy import job_levels

    runner, comparison, levels = result.runner_up, result.comparison, job_levels(result)
    scores, wrong = result.evaluation.scores, result.wrong_labels
    data = data_facts(result.data, result.X.shape[1], len(result.model.classes_))
    return {
        **_race_facts(comparison, result.leaks),
        "weight": result.data.weight,
        "setting": dict(result.best.setting),
        "weights": dict(result.weights),
        "verdict": verdict(scores, result.baselines["majority class"]) or None,
        "test": vars(scores),
        "test_score": measured(scores, comparison.measure.name),
        "models": [row.record() for row in result.comparison.rows],
        "sets": None if result.sets is None else _guarantee_facts(result.sets, "size", "coverage"),
        "unknown": None if result.unknown is None else _guarantee_facts(result.unknown, "answered", "accuracy"),
        "costs": None
        if result.costs is None
        else {**vars(result.costs), "saving": result.costs.saving, "text": str(result.costs)},
        "levels": None if levels is None else levels.records(),
        "more_rows": None if result.curve is None else str(result.curve),
        "wrong_labels": None if wrong is None else {"rows": len(wrong.suspects.rows), "judged": wrong.judged},
        "baselines": result.baselines,
        "runner_up": None if runner is None else {**vars(runner), "test": vars(runner.test)},
        "temperature": result.temperature,
        "notes": list(result.notes),
        "seconds": seconds,
        "stages": result.seconds,
        "data": {**data, "fitted_rows": result.fitted_rows},
    }


def _guarantee_facts(result: Tradeoff, x: str, y: str) -> dict[str, Any]:
    """Return what is guaranteed, and what was measured on the test rows."""
    return {"guarantee": result.guarantee, x: result.at[0], y: result.at[1], "note": result.note or None}


# ---- text


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
    return lines + [note_text(note) for note in data.notes]


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
        say(f"[bold yellow]Possible leak:[/] {safe(wrapped(with_flags(warning), 15))}")
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
        numbers = {"stopped early": len(stopped), "not run": len(skipped)}
        parts = [f"{count(n, 'family')} {what}" for what, n in numbers.items() if n]
        say(f"{', '.join(parts)}; --verbose lists them.")
    for note in result["notes"]:
        if note not in data["notes"]:  # column_lines has printed those
            say_note(note)


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
    if (costs := result["costs"]) is not None:
        lines.append(f"Costs: {costs['text']}.")
    if (wrong := result["wrong_labels"]) is not None and wrong["rows"]:
        lines.append(
            f"Labels: {wrong['rows']:,} of {wrong['judged']:,} are suspicious: wrong, or hard for the model (see the "
            "report). kway inspect lists them."
        )
    lines += [safe(note_text(each["note"])) for each in (sets, unknown) if each is not None and each["note"]]
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


def show_files(result: dict[str, Any]) -> None:
    """Print which files were written and what to do next."""
    files = " and ".join(safe(result[what]) for what in ("model", "report") if result[what] is not None)
    if files:
        say(f"Saved {files} in {result['seconds']:.1f} s.")
    if result["model"] is not None:
        say(f"Next: kway predict {safe(result['model'])} NEW_DATA")

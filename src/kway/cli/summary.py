"""What `kway fit` and `kway compare` say to people."""

from __future__ import annotations

from typing import Any

from kway.cli.output import safe, say, show_table, shown_number, width

_WIDE = 110  # letters of a line that holds every column of the leaderboard
_WHAT_IT_IS = {"straw man": " (least squares on the class number, which has no reason to be right)"}


def show_fit(result: dict[str, Any]) -> None:
    """The leaderboard and the test once."""
    show_comparison(result)
    test = result["test"]
    loss = "" if test["log_loss"] is None else f", log loss {test['log_loss']:.4f}"
    how = f" ({safe(_setting(result['setting']))})" if result["setting"] else ""
    held = result.get("sets") is not None or result.get("unknown") is not None
    where = "the train rows but those held out for the promise" if held else "all train rows"
    fitted = result["data"].get("fitted_rows", 0)
    if fitted > result["data"]["train_rows"]:
        where = f"{fitted:,} rows, those beyond memory too"
    say(f"Best: [bold green]{result['best']}[/]{how}, refitted on {where}.")
    say(
        f"Test accuracy [bold]{test['accuracy']:.4f}[/] (95 % interval {test['low']:.4f} to {test['high']:.4f}){loss} "
        f"on {test['rows']:,} untouched rows ({safe(result['data']['test_part'])})."
    )
    for line in _promise_lines(result):
        say(line)
    beside = (f"{safe(name)} {value:.4f}{_WHAT_IT_IS.get(name, '')}" for name, value in result["baselines"].items())
    say(f"Beside it: {', '.join(beside)}.")
    if result["runner_up"] is not None:
        say(_runner_up_line(result["runner_up"]))


def show_saved(result: dict[str, Any]) -> None:
    """Where the files are, those that could be written."""
    out = safe(result["model"])
    files = " and ".join(safe(result[what]) for what in ("model", "report") if result[what] is not None)
    after = f" Next: kway predict {out} DATA" if result["model"] is not None else ""
    if files:
        say(f"Saved {files} ({result['seconds']:.1f} s in all).{after}")


def show_comparison(result: dict[str, Any]) -> None:
    """What the data is, the leaderboard and the notes."""
    about, models = result["data"], result["models"]
    say(
        f"[bold]{safe(about['name'])}[/]: {about['train_rows']:,} train and {about['test_rows']:,} test rows, "
        f"{about['features']:,} feature{'' if about['features'] == 1 else 's'}, {about['classes']:,} classes"
    )
    measure, others = result["metric"], result["references"]
    own = () if measure == "accuracy" else (measure,)
    columns: tuple[str, ...] = ("model", *own, "accuracy", "log loss", "folds", "setting", "fit s", "µs a row", "size")
    lines = [_leaderboard_line(m, bool(own)) for m in models]
    lines += [_leaderboard_line({**m, "model": f"({m['model']})"}, bool(own)) for m in others]
    narrow = width() < _WIDE
    if narrow or measure == "log-loss":  # costs go first, then, beside another measure, the log loss
        shown = [j for j, name in enumerate(columns[:-3] if narrow else columns) if not own or name != "log loss"]
        columns, lines = tuple(columns[j] for j in shown), [tuple(line[j] for j in shown) for line in lines]
    how = "by cross-validation on train rows" + (f", chosen by {measure}" if own else "")
    show_table(f"Models, {how}", columns, lines, 0)
    if others:
        say("In brackets: not kway's, on the same folds for comparison; not saved.")
    for model in models:
        if model["note"]:
            say(f"{model['model']}: {safe(model['note'])}.")
    for model, why in result["idle"].items():
        say(f"{model}: not run, {safe(why)}.")
    for note in result["notes"]:
        say(f"Note: {safe(note)}.")


def _promise_lines(result: dict[str, Any]) -> list[str]:
    """What was promised of sets and of "unknown", and how the test rows came out; whether more rows would help."""
    lines = []
    if (sets := result.get("sets")) is not None:
        lines.append(
            f"Sets: {safe(sets['promise'])}. On the test rows [bold]{sets['coverage']:.4f}[/] hold it, with "
            f"{sets['size']:.2f} labels on average."
        )
    if (unknown := result.get("unknown")) is not None:
        lines.append(
            f"Unknown: {safe(unknown['promise'])}. Of the test rows [bold]{unknown['answered']:.4f}[/] are answered, "
            f"{unknown['accuracy']:.4f} of them right."
        )
    if result.get("more_rows"):
        lines.append(safe(result["more_rows"]))
    return lines


def _runner_up_line(runner: dict[str, Any]) -> str:
    test = runner["test"]
    verdict = "more than luck" if test["p_value"] < 0.05 else "no more than luck could give"
    return (
        f"Runner-up {runner['model']}: {runner['accuracy']:.4f}; only one of the two is right on "
        f"{test['only_first']} + {test['only_second']} rows, {verdict} (McNemar, p = {test['p_value']:.2g})."
    )


def _leaderboard_line(model: dict[str, Any], measured: bool) -> tuple[str, ...]:
    from kway.select.contest.standings import with_spread
    from kway.select.leaderboard import size_in_words

    own = (with_spread(model["score"], model["score_std"], len(model["fold_scores"])),) if measured else ()
    asked, size = model.get("predict_seconds"), model.get("bytes")
    return (
        model["model"],
        *own,
        with_spread(model["accuracy"], model["std"], len(model["fold_accuracy"])),
        shown_number(model["log_loss"], 3),
        model["folds_run"],
        _setting(model["setting"]),
        shown_number(model.get("fit_seconds"), 2),
        "–" if asked is None else f"{1e6 * asked:.1f}",
        size_in_words(size),
    )


def _setting(setting: dict[str, Any]) -> str:
    from kway.select.contest.compare import setting_in_words

    return setting_in_words(setting)

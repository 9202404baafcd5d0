"""`python -m benchmarks`: time kway and its peers; `python -m benchmarks ladder`: the gain from vectorization."""

from __future__ import annotations

import json as json_text
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from . import against, datasets, records, run

RowsArgument = Annotated[
    list[str] | None, typer.Argument(help="What to measure: T1, T4b, ..., gpu or ladder; every T row if omitted.")
]
OnlyOption = Annotated[
    list[str] | None, typer.Option("--only", help="The same as naming it: --only T1.", metavar="ROW")
]
AgainstOption = Annotated[
    Path | None,
    typer.Option("--against", help="Time kway alone, in turns with kway of this other checkout.", metavar="CHECKOUT"),
]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def bench(
    targets: RowsArgument = None,
    only: OnlyOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small data, two rounds: under two minutes.")] = False,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Runs of each contestant, in turns.")] = 5,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Also the peak memory, each contestant in its own process.")
    ] = True,
    classes: Annotated[int | None, typer.Option("--classes", min=1, help="Fewer classes for C1 or C2.")] = None,
    other: AgainstOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the results.", metavar="FOLDER")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Time kway and other libraries, or another checkout of kway, alternately on the same work."""
    asked = [*(targets or []), *(only or [])]
    if datasets.folder() is None and not json:
        print("KWAY_DATA is not set: embedded and synthetic data stand in.")
    if other is not None:
        _against(asked, other, rounds, quick, json)
        return
    wanted = asked or [name for name in run.JOBS if name not in run.BY_NAME_ONLY]
    wanted = [each for name in wanted for each in run.GROUPS.get(name, (name,))]
    _refuse_unknown(wanted, [*run.JOBS, "ladder"])
    if out is not None and out.is_file():
        raise typer.BadParameter(f"--out {out} is a file; name a folder")
    folder = out or (records.FOLDER if datasets.folder() is not None and not quick else None)
    plan = run.Plan(rounds, quick, memory, classes)
    measured = run.run(wanted, plan, folder, tell=(lambda _: None) if json else _show)
    if json:
        print(json_text.dumps(records.plain({"results": measured})))
    else:
        print("Nothing was saved: --out FOLDER saves, and so does a full run on real data." if folder is None else
              f"Saved to {folder}.")  # fmt: skip
    if any("error" in record for record in measured):
        raise typer.Exit(1)


def _against(asked: list[str], other: Path, rounds: int, quick: bool, json: bool) -> None:
    """Time the rows in both checkouts."""
    _refuse_unknown(asked, list(against.ROWS))
    if not (other / "src" / "kway" / "__init__.py").is_file():
        raise typer.BadParameter(f"--against {other} is no checkout of kway: it has no src/kway")
    tell = (lambda _: None) if json else print
    tell("seconds here against there, there / here, and the quality of both answers")
    found = {
        row: [pair.record() for pair in against.compare(row, other, 2 if quick else rounds, quick, tell)]
        for row in asked or against.ROWS
    }
    if json:
        print(json_text.dumps(found))


def _refuse_unknown(asked: list[str], known: list[str]) -> None:
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise typer.BadParameter(f"nothing to measure is called {unknown[0]!r}; there are {', '.join(known)}")


def _show(what: Any) -> None:
    """Print a table or a line."""
    Console(width=None if sys.stdout.isatty() else 200).print(what)


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")

"""`kway bench`: timings beside other libraries; `kway bench ladder`: what vectorising is worth."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import kway
from kway.cli.options import JsonOption
from kway.cli.output import emit_json, print_rich, safe, say
from kway.data.outputs.output_paths import check_output_folder

TargetsArgument = Annotated[
    list[str] | None, typer.Argument(help="What to measure: T1, T4b, ..., gpu or ladder; else every T.")
]
OnlyOption = Annotated[
    list[str] | None, typer.Option("--only", help="The same as naming it: --only T1.", metavar="TARGET")
]


def bench(
    targets: TargetsArgument = None,
    only: OnlyOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small data, two rounds: under two minutes.")] = False,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Runs of each contestant, interleaved.")] = 5,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Also the peak memory, each contestant in its own process.")
    ] = True,
    classes: Annotated[int | None, typer.Option("--classes", min=1, help="Classes of C1 or C2, where not all.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the results.", metavar="FOLDER")] = None,
    json: JsonOption = False,
) -> None:
    """Measure kway beside other libraries on the same work, in interleaved rounds."""
    from kway.errors import UsageError

    suite = home()
    run, datasets = (importlib.import_module(f"{suite}.{name}") for name in ("run", "datasets"))
    wanted = [*(targets or []), *(only or [])] or [name for name in run.JOBS if name not in run.BY_NAME_ONLY]
    wanted = [each for name in wanted for each in run.GROUPS.get(name, (name,))]
    unknown = [name for name in wanted if name not in {*run.JOBS, "ladder"}]
    if unknown:
        raise UsageError(f"nothing to measure is called {unknown[0]!r}; there are {', '.join(run.JOBS)} and ladder")
    if out is not None:
        check_output_folder("--out", out)
    real = datasets.folder() is not None
    if not real and not json:
        say("KWAY_DATA is not set: embedded and synthetic data stand in.")
    folder = out or (run.RESULTS if real and not quick else None)
    plan = run.Plan(rounds, quick, memory, classes)
    measured = run.run(wanted, plan, folder, tell=(lambda _: None) if json else _show)
    if json:
        emit_json({"results": measured})
    elif folder is None:
        say("Nothing was saved: --out FOLDER saves, and so does a full run on real data from a checkout.")
    else:
        say(f"Saved to {safe(folder)}.")
    if any("error" in record for record in measured):
        raise typer.Exit(1)


def home() -> str:
    """The package that holds the benchmarks: kway's own where it was installed from a wheel, else the checkout's."""
    from kway.errors import InputError

    if (Path(kway.__file__).parent / "benchmarks" / "run.py").is_file():
        return "kway.benchmarks"
    checkout = Path(kway.__file__).parents[2]
    if not (checkout / "benchmarks" / "run.py").is_file():
        raise InputError(f"the benchmarks are neither in kway's package nor in {checkout}; install kway again")
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    return "benchmarks"


def _show(what: Any) -> None:
    """A table, or a line as it is."""
    wide = None if sys.stdout.isatty() else 200  # a file has no edge
    print_rich(safe(what) if isinstance(what, str) else what, wide=wide)

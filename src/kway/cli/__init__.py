"""The command line, `kway fit DATA` and so on: each command is a function that parses, calls and prints.

Exit codes: 0 done, 1 failed (one line on stderr says why), 2 bad usage. With --json a command prints exactly one
JSON object on stdout. Nothing heavy is imported until a command runs, so that `--help` is quick.

fit, compare, predict, evaluate, explain, neighbors, info, plan, data, cluster   one command each
options      options that commands share         model_rows   DATA for a model that exists
output       JSON, text and tables               progress     the live view of a job
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from typing import Annotated

import typer

import kway
from kway.cli import cluster, compare, data, evaluate, explain, fit, info, neighbors, plan, predict
from kway.cli.options import in_command_words
from kway.cli.output import allow_any_character
from kway.errors import UsageError

app = typer.Typer(
    name="kway",
    help="K-way classification from ten classes to a billion.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(fit.fit)
app.command()(compare.compare)
app.command()(predict.predict)
app.command()(evaluate.evaluate)
app.command()(explain.explain)
app.command()(info.info)
app.command()(neighbors.neighbors)
app.command()(plan.plan)
app.add_typer(data.app, name="data")
app.add_typer(cluster.app, name="cluster")


def show_version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        typer.echo(f"kway {kway.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """K-way classification from ten classes to a billion."""


def run(arguments: list[str]) -> int:
    """Run one command line; the exit code."""
    with warnings.catch_warnings():
        warnings.showwarning = _brief_warning  # put back on leaving
        allow_any_character(sys.stdout, sys.stderr)
        try:
            app(args=arguments)
        except SystemExit as leaving:
            return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        except Exception as error:  # a person at a terminal wants the sentence, not the stack
            if os.environ.get("KWAY_TRACEBACK"):
                traceback.print_exc()
            print(f"error: {_one_line(error)}", file=sys.stderr)
            return 2 if isinstance(error, UsageError) else 1
    return 0


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def _one_line(error: Exception) -> str:
    from kway.errors import KwayError

    text = in_command_words(" ".join(str(error).split()), first=True)
    known = isinstance(error, (KwayError, OSError))
    return text if text and known else f"{type(error).__name__}: {text} (KWAY_TRACEBACK=1 shows where)"


def _brief_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)

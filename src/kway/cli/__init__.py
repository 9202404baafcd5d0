"""The command line (`kway fit DATA` and so on). Each command is a function that parses, calls the library and prints.

Exit codes: 0 done, 1 failed (one line on stderr says why), 2 bad usage. With --json a command prints exactly one JSON
object on stdout. Nothing heavy is imported until a command runs, so that `--help` is quick.

fit.py              the commands fit and compare
fit_output.py       their results as JSON and as text
predict.py          the command predict
predict_parts.py    prediction over a cluster, part by part
inspect.py          the command inspect
suggest.py          the command suggest
saved_model.py      the commands evaluate, explain, neighbors and info
plan.py, data.py, cluster.py, warmup.py    one command each
multilabel.py       what fit and evaluate print for several labels per row
model_rows.py       DATA for a saved model
options.py          options that several commands share
output.py           JSON, text, tables and the live view
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from typing import Annotated

import typer

import kway
from kway.auto.fit_options import FAMILY_DESCRIPTIONS
from kway.cli import cluster, data, fit, inspect, plan, predict, saved_model, suggest, warmup
from kway.cli.options import flag, with_flags
from kway.cli.output import allow_any_character, report_lost_output
from kway.errors import UsageError
from kway.text_tables import printable

_FAMILIES = "\n".join(
    [
        "Families:",
        *(f"{name}: {about}." for name, about in FAMILY_DESCRIPTIONS.items()),
        "For images, families whose names end in -edges learn from edges and patches instead of pixels.",
        "For tables with text, families whose names end in -no-text ignore the text.",
    ]
)

app = typer.Typer(
    name="kway",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.command(epilog=_FAMILIES)(fit.fit)
app.command(epilog=_FAMILIES)(fit.compare)
app.command()(predict.predict)
app.command(epilog=_FAMILIES)(inspect.inspect)
for command in (saved_model.evaluate, saved_model.explain, saved_model.neighbors, saved_model.info):
    app.command()(command)
app.command()(suggest.suggest)
app.command()(plan.plan)
app.add_typer(data.app, name="data")
app.add_typer(cluster.app, name="cluster")
app.command()(warmup.warmup)


def show_version(requested: bool) -> None:
    """Print the version and exit, if --version was passed."""
    if requested:
        typer.echo(f"kway {kway.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, flag("--version", "Print the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Classify tables, texts, images and embeddings into any number of classes.

    `kway fit` finds the best classifier for your data and saves it.
    `kway predict` uses it for new rows.

    Example:

    kway fit offers.csv --target kind

    kway predict model.kway new.csv
    """


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    with warnings.catch_warnings():
        warnings.showwarning = _print_warning  # catch_warnings restores it
        if sys.stderr is None:  # closed by `2>&-`
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        allow_any_character(sys.stdout, sys.stderr)
        try:
            code = app(args=arguments) or 0
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
        except Exception as error:  # users see one line; KWAY_TRACEBACK=1 shows the stack
            if os.environ.get("KWAY_TRACEBACK"):
                traceback.print_exc()
            print(f"error: {_one_line(error)}", file=sys.stderr)
            code = 2 if isinstance(error, UsageError) else 1
        return code or report_lost_output()


def main() -> None:
    """Run the console script."""
    sys.exit(run(sys.argv[1:]))


def _one_line(error: Exception) -> str:
    from kway.errors import KwayError

    text = printable(with_flags(" ".join(str(error).split()), first=True))
    known = isinstance(error, (KwayError, OSError))
    return text if text and known else f"{type(error).__name__}: {text} (KWAY_TRACEBACK=1 shows where)"


def _print_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {printable(' '.join(str(message).split()))}", file=sys.stderr)

"""What typer makes of a command line is the same, whether it builds readers of all values or of those that need one."""

import subprocess
import sys

import pytest
import typer
import typer.core

from kway import light_imports
from kway.cli import app

LINES = [
    "fit a.csv",
    "fit a.csv --target y --seed 7 --alpha 0.5 --folds 3 --json",
    "fit a.csv -o m.kway --report r.html --figures pics --also sklearn.svm.SVC --also sklearn.svm.NuSVC",
    "fit a.csv --alpha -1",
    "fit a.csv --seed many",
    "fit a.csv --sets 0.9 --unknown x",
    "fit",
    "predict m.kway a.csv --topk 3 --proba -o out.csv",
    "predict m.kway a.csv --topk three",
    "plan --samples 1e6 --features 10 --classes ten",
    "data list --json",
    "neighbors a.csv --nothing",
]


def parsed(line):
    """The values of every command of a line, or what is wrong with it."""
    command, values = typer.main.get_command(app), []
    context = command.make_context("kway", line.split(), resilient_parsing=False)
    words = [*context._protected_args, *context.args]
    try:
        while words and hasattr(command, "commands"):
            command, rest = command.commands[words[0]], words[1:]
            context = command.make_context(words[0], rest, parent=context)
            values.append(context.params)
            words = [*context._protected_args, *context.args]
    except Exception as error:
        return type(error).__name__, getattr(error, "message", str(error))
    return values


@pytest.mark.parametrize("line", LINES)
def test_values_are_read_alike(line, monkeypatch):
    plain = parsed(line)
    monkeypatch.setattr(
        typer.core, "build_runtime_param", getattr(typer.core, "build_runtime_param", None), raising=False
    )
    light_imports.typer_values()
    assert parsed(line) == plain
    assert [type(v) for part in parsed(line) for v in getattr(part, "values", list)()] == [
        type(v) for part in plain for v in getattr(part, "values", list)()
    ]


def test_a_fit_needs_no_pydantic():
    code = (
        "import sys; sys.argv = ['kway', 'fit', 'none.csv', '--target', 'y']\n"
        "from kway.cli import main\n"
        "try: main()\n"
        "except SystemExit: print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False", done.stderr

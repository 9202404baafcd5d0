"""A mkdocs hook: the marker `<!-- commands -->` of a page becomes the commands of `kway`, read from the commands.

Each verb gives a heading, its usage, what it does and a table of its arguments and options, so that the page cannot
differ from `kway VERB --help`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MARKER = "<!-- commands -->"


def verbs(group: Any, before: str = "kway") -> Iterator[tuple[str, Any]]:
    """Yield the full name and the command of every verb, including those of groups such as `kway data`."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from verbs(command, f"{before} {name}")
        else:
            yield f"{before} {name}", command


def described(name: str, command: Any) -> str:
    """Return the description of one verb as Markdown."""
    arguments = [p.name.upper() for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([name, *arguments, "[OPTIONS]"])
    rows = [f"| {_call(p)} | {_escaped(p.help)}{_default(p)} |" for p in command.params]
    head = [f"## {name}", "", command.help, "", f"    {usage}", "", "| argument, option | meaning |", "|---|---|"]
    return "\n".join([*head, *rows, ""])


def commands() -> str:
    """Return the descriptions of all verbs as Markdown."""
    from typer.main import get_command

    from kway.cli import app

    return "\n".join(described(*verb) for verb in verbs(get_command(app)))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the marker by the commands."""
    return markdown.replace(MARKER, commands()) if MARKER in markdown else markdown


def _call(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.name.upper()}`"
    value = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
    return ", ".join(f"`{option}{value}`" for option in parameter.opts)


def _default(parameter: Any) -> str:
    return "" if parameter.default in (None, False) else f" Default `{parameter.default}`."


def _escaped(text: str | None) -> str:
    return (text or "").replace("|", "\\|")

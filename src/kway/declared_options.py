"""Options that are declared once, as fields of a dataclass, for Python and for the commands.

    @dataclass(frozen=True)
    class FitOptions:
        folds: int = option(5, "Folds of the cross-validation.", typed=int, check=...)

`kway.fit(**options)` takes the names of the fields; a command builds its signature from them. The message of an error
names an option as Python does: as `name=`, or at its beginning with a verb, such as "folds must". The command adds
its own spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, fields
from typing import Any, NamedTuple

from kway.errors import InputError, KindError, UsageError
from kway.suggest import listing, nearest


class Option(NamedTuple):
    """What an option declares besides its name and default."""

    help: str
    check: Callable[[str, Any], Any] | None = None  # (name, value) -> the value to keep; raises InputError
    typed: Any = str | None  # type on the command line
    flags: tuple[str, ...] = ()  # on the command line; by default --name
    metavar: str | None = None
    parse: Callable[[Any], Any] | None = None  # converts the typed text to the value in Python
    commands: tuple[str, ...] = ()  # the commands that have it; () is all


def option(default: Any, help: str, **more: Any) -> Any:
    """Declare a field of an options dataclass."""
    return field(default=default, metadata={"option": Option(help, **more)})


def options_of(cls: type, command: str | None = None) -> dict[str, Option]:
    """Return the options that a dataclass declares, by name; only those of `command` if given."""
    declared = {f.name: f.metadata["option"] for f in fields(cls) if "option" in f.metadata}
    return {name: o for name, o in declared.items() if command is None or not o.commands or command in o.commands}


def check_options(given: Any) -> None:
    """Check every option of a frozen dataclass that has a check, and keep the value that the check returns."""
    for name, declared in options_of(type(given)).items():
        if declared.check is None:
            continue
        try:
            value = declared.check(name, getattr(given, name))
        except UsageError:
            raise
        except InputError as error:
            raise UsageError(str(error)) from error
        object.__setattr__(given, name, value)


def flag_of(name: str, declared: Option) -> str:
    """Return the option as it is typed on the command line."""
    return declared.flags[0] if declared.flags else f"--{name.replace('_', '-')}"


def refuse_unknown(given: Iterable[str], known: Sequence[str]) -> None:
    """Raise KindError, as Python does for an unknown argument, and suggest the nearest name."""
    for name in given:
        if name not in known:
            raise KindError(
                f"there is no option {name!r}{nearest(name, known)}; known are {listing(known, len(known))}"
            )


def split_names(text: str | None) -> tuple[str, ...]:
    """Split names at commas; repeated names count once."""
    return tuple(dict.fromkeys(part.strip() for part in (text or "").split(",") if part.strip()))

"""Options that are declared once, as fields of a dataclass, for Python and for the commands.

    @dataclass(frozen=True)
    class FitOptions:
        folds: int = option(5, "Folds of the cross-validation.", typed=int, check=...)

`kway.fit(**options)` takes the names of the fields; a command builds its signature from them. The message of an error
names an option as Python does, at its beginning or as `name=`; the command adds its own spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, fields
from typing import Any, NamedTuple

from kway.errors import InputError, KindError, UsageError
from kway.suggest import listing, nearest


class Option(NamedTuple):
    """What is known of an option beside its name and default."""

    help: str
    check: Callable[[str, Any], Any] | None = None  # (name, value) -> the value to keep; raises InputError
    typed: Any = str | None  # type on the command line
    flags: tuple[str, ...] = ()  # on the command line; by default --name
    metavar: str | None = None
    parse: Callable[[Any], Any] | None = None  # from what was typed to the value in Python
    commands: tuple[str, ...] = ()  # that have it; (): all


def option(default: Any, help: str, **more: Any) -> Any:
    """A field of an options dataclass."""
    return field(default=default, metadata={"option": Option(help, **more)})


def options_of(cls: type, command: str | None = None) -> dict[str, Option]:
    """The options that a dataclass declares by name; those of one command, if asked."""
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


def described(cls: type, command: str, leave_out: Sequence[str] = ()) -> str:
    """The options of a command as lines of a docstring."""
    found = {name: o for name, o in options_of(cls, command).items() if name not in leave_out}
    return "\n".join(f"    {name} : {o.help}" for name, o in found.items())


def flag_of(name: str, declared: Option) -> str:
    """The option as it is typed."""
    return declared.flags[0] if declared.flags else f"--{name.replace('_', '-')}"


def refuse_unknown(given: Iterable[str], known: Sequence[str]) -> None:
    """Raise, as Python does for an argument that a function does not have, and offer the nearest name."""
    for name in given:
        if name not in known:
            raise KindError(
                f"there is no option {name!r}{nearest(name, known)}; known are {listing(known, len(known))}"
            )


def split_names(text: str | None) -> tuple[str, ...]:
    """Names with commas between, each once."""
    return tuple(dict.fromkeys(part.strip() for part in (text or "").split(",") if part.strip()))

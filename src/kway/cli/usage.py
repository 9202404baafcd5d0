"""What a person typed wrong: told in one line, exit code 2, as other bad usage is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kway.errors import InputError, UsageError


@contextmanager
def as_usage() -> Iterator[None]:
    """Inside, what is wrong with an option is bad usage."""
    try:
        yield
    except UsageError:
        raise
    except InputError as error:
        raise UsageError(str(error)) from error


def names_in(text: str | None) -> tuple[str, ...]:
    """Names with commas between, each once."""
    return tuple(dict.fromkeys(part.strip() for part in (text or "").split(",") if part.strip()))

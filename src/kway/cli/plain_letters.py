"""Streams that cannot say every letter (PYTHONIOENCODING=ascii, old terminals): the nearest plain ones instead."""

from __future__ import annotations

import codecs
import unicodedata
from typing import Any

_PLAIN = {
    "–": "-", "—": "-", "…": "...", "±": "+-", "µ": "u", "×": "x", "·": ".", "≥": ">=", "≤": "<=", "→": "->",
    "“": '"', "”": '"', "‘": "'", "’": "'", "\N{NO-BREAK SPACE}": " ", "\N{MINUS SIGN}": "-",
    "━": "-", "─": "-", "╸": "-", "╺": "-", "│": "|", "•": "*",
}  # fmt: skip
_NAME = "kway-plain"


def plain_letters(text: str) -> str:
    """ASCII for people: accents left out, signs spelt, ? for the rest."""
    said = "".join(_PLAIN.get(letter, letter) for letter in text)
    said = unicodedata.normalize("NFKD", said)
    return "".join(c if ord(c) < 128 else "" if unicodedata.combining(c) else "?" for c in said)


def _handler(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return plain_letters(error.object[error.start : error.end]), error.end


def speak_plainly(*streams: Any) -> None:
    """Let these streams write what their encoding has no letters for, in the nearest that it has."""
    codecs.register_error(_NAME, _handler)
    for stream in streams:
        if hasattr(stream, "reconfigure") and not (stream.encoding or "").lower().startswith("utf"):
            stream.reconfigure(errors=_NAME)

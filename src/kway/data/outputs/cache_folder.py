"""The folder of what kway can compute again: $KWAY_CACHE, else $XDG_CACHE_HOME/kway, else ~/.cache/kway.

Where there is no home (a service without an account, a container of an unknown user) the system's folder of temporary
files stands in, one folder a user.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Where kway keeps what it can compute again; it need not exist yet."""
    own = os.environ.get("KWAY_CACHE")
    if own:
        return Path(own)
    given = os.environ.get("XDG_CACHE_HOME")
    if given:
        return Path(given) / "kway"
    try:
        return Path.home() / ".cache" / "kway"
    except RuntimeError:  # neither $HOME nor an account
        return Path(tempfile.gettempdir()) / f"kway-{os.getuid()}"

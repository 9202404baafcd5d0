"""What a compiled kernel was made from: the text of its module and of every kernel module that it draws on.

numba keeps a compiled kernel for as long as the file it is written in stays as it is. A change in another file, of
what the kernel calls, it does not see: after an upgrade it would run the old code of the one with the new numbers of
the other. So the stamp of all of these is part of the key under which a kernel is kept.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
from pathlib import Path

PACKAGE = "kway.compute.kernels"  # kernels draw on no other
_DRAWS_ON = re.compile(rf"""^(?:from|@late_kernel\()\W*({PACKAGE}\.[\w.]+)""", re.MULTILINE)


@functools.cache
def _text(module: str) -> str:
    """The source of a module, which may not be loaded yet; nothing where there is no such file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None and module.startswith(f"{PACKAGE}."):
        file = Path(__file__).parent.joinpath(*module.removeprefix(f"{PACKAGE}.").split(".")).with_suffix(".py")
    try:
        return "" if file is None else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


@functools.cache
def source_stamp(module: str) -> str:
    """A digest of the module's source and of all that it draws on."""
    seen: set[str] = set()
    ahead = [module]
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead += _DRAWS_ON.findall(_text(name))
    return hashlib.sha256("\0".join(_text(name) for name in sorted(seen)).encode()).hexdigest()

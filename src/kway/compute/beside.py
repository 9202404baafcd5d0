"""`beside(work)`: work() -> text on another core, by a forked copy of this process that sends back the text alone.

For Python's own work, such as drawing, which threads would do one at a time. Only where a fork is known to be safe: on
Linux, in the command's own process, without the threads of torch and Ray; elsewhere, and where the copy fails or stands
still, the text is worked out here, when it is asked for.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable

from kway import progress
from kway.compute.threads import cores
from kway.light_imports import PROCESS

STANDSTILL = 60.0  # seconds without a byte after which the copy is given up


def beside(work: Callable[[], str]) -> Callable[[], str]:
    """What gives the text: begun at once where there is a core for it."""
    if not (PROCESS.own and sys.platform == "linux" and cores() > 1) or {"torch", "ray"} & set(sys.modules):
        return work
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        _send(work, sink)
    os.close(sink)

    def text() -> str:
        found = _received(source, child)
        return work() if found is None else found

    return text


def _send(work: Callable[[], str], sink: int) -> None:
    """The copy's life: nothing of what it has inherited is flushed, closed or said a second time."""
    try:
        with open(sink, "wb") as out, progress.watched(lambda news: None):
            out.write(work().encode())
        os._exit(0)
    finally:
        os._exit(1)


def _received(source: int, child: int) -> str | None:
    """All that the copy sent; None where it did not come to its end."""
    parts = []
    with open(source, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], STANDSTILL)[0]:
            part = pipe.read(1 << 16)
            if not part:
                break
            parts.append(part)
        else:
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return None if status else b"".join(parts).decode()

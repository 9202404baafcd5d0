"""`kway warmup`: compile the most common kernels before they are needed.

Kernels are compiled when they are first used and then kept on disk, once per machine and version of kway.
"""

from __future__ import annotations

import time
from pathlib import Path

from kway import progress
from kway.cli.options import JsonOption
from kway.cli.output import emit_json, live_view, say


def kernels_are_compiled() -> bool:
    """Return whether the folder of compiled kernels contains any."""
    from kway.kernels.linear.fused import fused_losses  # a kernel that nearly every comparison uses

    stats = getattr(fused_losses, "stats", None)
    if stats is None:  # NUMBA_DISABLE_JIT
        return True
    return stats.cache_path is not None and any(Path(stats.cache_path).glob("*.nbi"))


def announce_compilation(seconds: int = 20) -> None:
    """Print a note if this run has to compile kernels, which takes about `seconds`."""
    if not kernels_are_compiled():
        progress.note(f"Compiling kernels, once per machine: about {seconds} s (`kway warmup` does it in advance).")


def warmup(json: JsonOption = False) -> None:
    """Compile kway's numerical code in advance, so that later commands start without a delay.

    Each function of numerical code is otherwise compiled when it is first used,
    once per machine and version of kway. This command compiles the most common
    ones.

    Example: kway warmup
    """
    import kway

    started = time.perf_counter()
    problems = {"iris": "all", "digits": "softmax,neighbors,neighbors-manhattan"}
    with live_view("compiling kernels"):
        for number, (data, models) in enumerate(problems.items()):
            with progress.portion(number / len(problems), (number + 1) / len(problems)):
                kway.fit(data, models=models, folds=2, also="none")
    seconds = time.perf_counter() - started
    if json:
        emit_json({"seconds": seconds})
    else:
        say(f"The kernels are compiled ({seconds:.1f} s). Next: kway fit DATA")

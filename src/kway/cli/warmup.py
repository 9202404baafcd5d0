"""`kway warmup`: compile the usual kernels before they are needed.

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
    from kway.kernels.linear.fused import fused_softmax  # a kernel that nearly every comparison uses

    stats = getattr(fused_softmax, "stats", None)
    if stats is None:  # NUMBA_DISABLE_JIT
        return True
    return stats.cache_path is not None and any(Path(stats.cache_path).glob("*.nbi"))


def announce_compilation(seconds: int = 8) -> None:
    """Print a note if this run has to compile kernels; `seconds` is the time of T8."""
    if not kernels_are_compiled():
        progress.note(f"Compiling kernels, once per machine: about {seconds} s.")


def warmup(json: JsonOption = False) -> None:
    """Compile kway's kernels, so that the first fit does not wait for it. Needed once per machine.

    Example: kway warmup
    """
    from kway.auto.job import run_job
    from kway.auto.options import FitOptions
    from kway.auto.train_test import read_train_test

    started = time.perf_counter()
    with live_view("compiling"):
        for number, (name, metric) in enumerate(problems := [("iris", "accuracy"), ("digits8x8", "log-loss")]):
            with progress.stage(f"compiling for {name}", number, len(problems)):
                found = run_job(read_train_test(name), FitOptions(metric=metric))
                found.model.predict_proba(found.data.test_rows)
    seconds = time.perf_counter() - started
    if json:
        emit_json({"seconds": seconds})
    else:
        say(f"Compiled the kernels in {seconds:.1f} s. Next: kway fit DATA")

"""One contestant of one target, alone in a process: its working memory and the time for compiling kernels.

    python -m benchmarks.child TARGET CONTESTANT FOLDER ROUNDS    reads and writes in FOLDER

kway runs with an empty kernel cache. Compilation is timed here, because in the race the kernels are ready.
"""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import kway

from . import race

HOME = Path(__file__).parents[1]  # the folder that the package is imported from


def as_installed() -> None:
    """Compile kway's sources to bytecode, as pip does, before a whole process is timed.

    With PYTHONDONTWRITEBYTECODE set, each process would compile all modules, which takes half a second.
    """
    compileall.compile_dir(Path(kway.__file__).parent, quiet=1)


def spawn(module: str, *arguments: str, **settings: str) -> str:
    """Run a module of this package in a child process with `settings` in its environment; return what it printed."""
    path = os.pathsep.join(filter(None, [str(HOME), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        env={**os.environ, "PYTHONPATH": path, **settings}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{module} {' '.join(arguments[:2])} failed in a process of its own: {said}")
    return done.stdout


def measure(target: str, contestant: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Return {"megabytes": {number of the race: MB}, "jit_seconds": s} from a child process."""
    with tempfile.TemporaryDirectory() as cold:
        settings = {"NUMBA_CACHE_DIR": cold} if contestant == "kway" else {}
        spawn("child", target, contestant, str(folder), str(rounds), **settings)
    return json.loads((folder / "alone.json").read_text())


def main(target: str, contestant: str, folder: Path, rounds: int) -> None:
    """Run in the child process."""
    from numba.core import event

    from .run import job

    compiling = event.TimingListener()
    event.register("numba:compile", compiling)
    known = json.loads((folder / "settled.json").read_text())
    now = race.begin(race.Pass(contestant, folder=folder, settled=known))
    job(target)(rounds, False)
    said = {"megabytes": now.megabytes, "jit_seconds": compiling.duration if compiling.done else 0.0}
    (folder / "alone.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))

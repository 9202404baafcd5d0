"""Deals altered files to a child process, started anew where it dies or hangs, and counts what became of them."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from file_attack.changes import Subject
from file_attack.subjects import write

PATIENCE = 40.0  # seconds a file may take; most take a hundredth, but the machine may be busy
START = 900.0  # and a child to compile the kernels, with bounds checks on and nothing kept


class Child:
    """One process that answers."""

    def __init__(self, folder, bounds):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
        if bounds:  # kernels that check every index, kept apart from those that do not
            environment |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(folder / "kernels")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "file_attack.child", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        self._left = b""
        while (line := self._line(START)) is not None:
            if "ready" in line:
                return
            raise RuntimeError(f"a whole model did not answer: {line}")
        raise RuntimeError("the child did not start")

    def ask(self, path, queries):
        """What became of a file; None where the child died or took too long."""
        try:
            self.process.stdin.write(f"{path}\t{queries}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        return self._line(PATIENCE)

    def _line(self, patience):
        end = time.monotonic() + patience
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._left:
                if not ready.select(max(0.0, end - time.monotonic())):
                    return None
                more = os.read(self.process.stdout.fileno(), 65536)
                if not more:
                    return None
                self._left += more
        line, self._left = self._left.split(b"\n", 1)
        return json.loads(line)

    def stop(self):
        """End the process; its exit code, None where it had to be killed."""
        self.process.stdin.close()
        try:
            code = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = None
        self.process.stdout.close()
        return code


@dataclass
class Counts:
    """How many files met which end, by the way they were altered; and those that met a bad one."""

    by_change: dict[str, Counter] = field(default_factory=dict)
    bad: list[dict] = field(default_factory=list)

    def add(self, how, outcome):
        """One more."""
        self.by_change.setdefault(how, Counter())[outcome] += 1

    @property
    def total(self):
        """All outcomes together."""
        return sum(self.by_change.values(), Counter())

    def __str__(self):
        lines = [f"{how:<14} {dict(sorted(count.items()))}" for how, count in sorted(self.by_change.items())]
        return "\n".join([*lines, f"{'all':<14} {dict(sorted(self.total.items()))}"])


def run(n, seed=0, seconds=None, bounds=False, keep=None, tell=None):
    """Alter n files (or as many as `seconds` allow) and count; bad ones are kept in the folder `keep`."""
    counts = Counts()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        subjects = {name: Subject(folder / f"{name}.kway") for name in write(folder)}
        names = sorted(subjects)
        child, end = Child(folder, bounds), time.monotonic() + (seconds or np.inf)
        try:
            for i in range(n):
                if time.monotonic() > end:
                    break
                rng = np.random.default_rng((seed, i))
                name = names[rng.integers(len(names))]
                how, content = subjects[name].changed(rng)
                path = folder / "altered"
                path.unlink(missing_ok=True)
                path.write_bytes(content)
                found = child.ask(path, folder / f"{name}.json")
                if found is None:
                    code = child.stop()
                    found = {"outcome": "hung" if code is None else "crashed", "error": f"exit {code}"}
                    child = Child(folder, bounds)
                counts.add(how, found["outcome"])
                if found["outcome"] in ("raw", "hung", "crashed"):
                    counts.bad.append({"i": i, "model": name, "change": how, **found})
                    _keep(keep, counts.bad[-1], content)
                if tell and i % 500 == 499:
                    tell(f"{i + 1:,}: {dict(counts.total)}")
        finally:
            child.stop()
    return counts


def _keep(folder, bad, content):
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{bad['i']}-{bad['model']}.kway").write_bytes(content)

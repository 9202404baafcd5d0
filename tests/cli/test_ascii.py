"""PYTHONIOENCODING=ascii: every verb says what it has to in the letters there are."""

import json
import os
import subprocess
import sys
from pathlib import Path

VERBS = {
    "fit": ["fit", "t.csv", "-t", "k", "--model", "neighbors"],
    "compare": ["compare", "t.csv", "-t", "k", "--model", "centroid"],
    "predict": ["predict", "model.kway", "t.csv", "--topk", "2"],
    "predict --json": ["predict", "model.kway", "t.csv", "--json"],
    "evaluate": ["evaluate", "model.kway", "t.csv"],
    "neighbors": ["neighbors", "model.kway", "t.csv"],
    "info": ["info", "model.kway"],
    "data list": ["data", "list"],
    "data export": ["data", "export", "t.csv", "-o", "o.parquet"],
    "help": ["fit", "--help"],
    "a column that is not there": ["fit", "t.csv", "-t", "größ"],
    "an option that is not there": ["fit", "t.csv", "--größe"],
}
CODES = {"a column that is not there": 2, "an option that is not there": 2}
DRIVER = """
import json, sys
from kway.cli import run
from kway.report import page
page.write_page = lambda path, *_: open(path, "w").close()  # as in conftest.py
codes = {}
for name, arguments in json.loads(sys.argv[1]).items():
    codes[name] = run(arguments)
    sys.stdout.flush(), sys.stderr.flush()
with open("codes.json", "w") as file:
    json.dump(codes, file)
"""


def test_every_verb(tmp_path):
    rows = [f"{i % 2}.{i},größe {'klein' if i % 2 else 'groß'},{'naïve' if i % 2 else 'Ω 漢'}" for i in range(40)]
    Path("t.csv").write_text("µm,wört,k\n" + "\n".join(rows) + "\n", encoding="utf-8")
    there = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(VERBS)], capture_output=True, env=there, timeout=300
    )
    said = done.stdout + done.stderr
    assert b"Unicode" not in said
    assert b"Traceback" not in said
    codes = json.loads(Path("codes.json").read_text())
    assert codes == {**dict.fromkeys(VERBS, 0), **CODES}
    done.stderr.decode("ascii")
    odd = {line for line in done.stdout.splitlines() if not line.isascii()}
    assert odd  # a table on stdout is UTF-8 whatever the terminal is, and nothing else is
    assert all("naïve" in line.decode() or "Ω" in line.decode() for line in odd)
    assert b"gr??e" in done.stderr

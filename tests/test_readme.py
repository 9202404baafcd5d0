"""What the README says works: its make targets exist, its Python runs, its commands are known."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def make_targets(text):
    return sorted(set(re.findall(r"^(?:    )?make ([\w-]+)", text, re.MULTILINE)))


def test_the_first_screen_has_install_demo_and_test():
    first = "\n".join(README.splitlines()[:20])
    assert {"demo", "test"} <= set(make_targets(first))
    assert "pip install ." in first


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("target", sorted({*make_targets(README), *make_targets(CONTRIBUTING), "clean", "slow"}))
def test_make_targets_exist(target):
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    names: dict = {}
    for block in blocks:
        exec(block, names)
    x, y = names["x_test"], names["digits"].y_test
    assert names["same"].score(x, y) == names["model"].score(x, y) > 0.85


def test_the_commands_of_the_readme_exist():
    from kway.cli import app

    known = {c.name or c.callback.__name__ for c in app.registered_commands} | {g.name for g in app.registered_groups}
    used = set(re.findall(r"^    kway (\w+)", README, re.MULTILINE))
    assert used
    assert used <= known

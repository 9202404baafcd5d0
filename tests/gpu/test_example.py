"""examples/billion_classes.py on the CPU, small; it needs no torch there."""

import importlib.util
import sys
from pathlib import Path


def test_the_example_finds_the_classes(monkeypatch, capsys):
    path = Path(__file__).parents[2] / "examples" / "billion_classes.py"
    spec = importlib.util.spec_from_file_location("billion_classes", path)
    example = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "billion_classes", example)
    spec.loader.exec_module(example)
    run = example.on_cpu(20_000, 64, 0.6)
    assert run.accuracy >= 0.98
    assert run.bytes > 0
    monkeypatch.setattr(sys, "argv", ["billion_classes.py", "--classes", "2e3", "--queries", "16"])
    example.main()
    assert "2,000 classes x 512 features on cpu" in capsys.readouterr().out

"""Data that tries to control a terminal, a spreadsheet or the machine, and streams that cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kway

KWAY = [sys.executable, "-c", "from kway.cli import main; main()"]
TITLE = "\x1b]0;PWNED\x07\x1b[2J"
CENTROID = ("--target", "label", "--model", "centroid")


def write_table(path, labels=("a", "b"), column="x"):
    lines = [f"{i * 7 % 11},{labels[i % 2]}" for i in range(60)]
    Path(path).write_text("\n".join([f"{column},label", *lines]) + "\n")


def test_escape_sequences_do_not_reach_the_terminal(cli):
    write_table("t.csv", (f"a{TITLE}", "b"), f"n{TITLE}")
    assert cli("fit", "t.csv", *CENTROID)[0] == 0
    model = kway.load("model.kway")
    kway.save(model, "noted.kway", {"data": f"x{TITLE}"})
    commands = (
        ["fit", "t.csv", *CENTROID, "--force"], ["evaluate", "model.kway", "t.csv", "--target", "label"],
        ["explain", "model.kway"], ["info", "noted.kway"], ["fit", "t.csv", "--target", "nosuch"],
        ["compare", "t.csv", *CENTROID, "-v"],
    )  # fmt: skip
    for arguments in commands:
        _, out, err = cli(*arguments)
        assert "\x1b]0;" not in out + err, arguments
    assert "\\x1b]0;PWNED" in err


def test_predictions_on_a_terminal_have_no_escape_sequences(cli):
    import pty

    write_table("t.csv", (f"a{TITLE}", "b"))
    cli("fit", "t.csv", *CENTROID)
    reader, writer = pty.openpty()
    subprocess.run([*KWAY, "predict", "model.kway", "t.csv"], stdout=writer, stderr=subprocess.DEVNULL, check=True)
    os.close(writer)
    seen = os.read(reader, 1 << 16)
    assert b"PWNED" in seen
    assert b"\x1b" not in seen
    out = subprocess.run([*KWAY, "predict", "model.kway", "t.csv"], capture_output=True, check=True).stdout
    assert TITLE.encode() in out  # a pipe gets the labels as they are


def test_cells_that_begin_as_formulas_are_guarded_in_csv(cli):
    write_table("t.csv", ("=HYPERLINK(1)", "-1.5"), "@x")
    cli("fit", "t.csv", *CENTROID)
    for _ in range(2):  # the second run replaces the file, because kway wrote it
        assert cli("predict", "model.kway", "t.csv", "--keep", "@x", "-o", "o.csv")[0] == 0
    lines = Path("o.csv").read_text().splitlines()
    assert lines[0] == '"\'@x","prediction"'
    assert {line.split(",")[1] for line in lines[1:]} == {'"\'=HYPERLINK(1)"', '"-1.5"'}
    cli("predict", "model.kway", "t.csv", "-o", "o.jsonl")
    assert '"=HYPERLINK(1)"' in Path("o.jsonl").read_text()


def test_a_closed_stderr_and_a_full_disk_do_not_lose_the_model():
    write_table("t.csv")
    command = f"{sys.executable} -c 'from kway.cli import main; main()' fit t.csv --target label --model centroid"
    closed = subprocess.run(f"{command} 2>&-", shell=True, capture_output=True, text=True)
    assert closed.returncode == 0
    assert "Saved model.kway" in closed.stdout
    Path("model.kway").unlink()
    full = subprocess.run(f"{command} > /dev/full", shell=True, capture_output=True, text=True)
    assert full.returncode == 1
    assert "error: stdout cannot be written: No space left on device; the files are complete" in full.stderr
    assert kway.load("model.kway").predict({"x": [1]}).shape == (1,)
    assert Path("report.html").stat().st_size > 0


def test_a_cell_of_megabytes_is_read(answer):
    cells = [f"{'word ' * (600_000 if i == 3 else 5)}{i},{'ab'[i % 2]}" for i in range(40)]
    Path("t.csv").write_text("text,label\n" + "\n".join(cells) + "\n")
    assert answer("compare", "t.csv", *CENTROID)["data"]["train_rows"] == 32


def test_a_header_of_a_megabyte_is_read(answer):
    names = [f"column_{'x' * 2000}_{i}" for i in range(600)]
    rows = [",".join([str((i * j) % 7) for j in range(600)] + ["ab"[i % 2]]) for i in range(40)]
    Path("t.csv").write_text(",".join([*names, "label"]) + "\n" + "\n".join(rows) + "\n")
    assert answer("compare", "t.csv", *CENTROID)["data"]["train_rows"] == 32


def pictures(folder, scale=1, dtype=np.uint8):
    from PIL import Image

    for k, base in (("a", 0), ("b", 90)):
        (folder / k).mkdir(parents=True)
        for i in range(8):
            Image.fromarray(np.full((16, 16), scale * (5 * i + base), dtype)).save(folder / k / f"{i}.png")


def test_no_program_runs_for_postscript_with_the_name_of_an_image(cli, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    ghostscript = tmp_path / "bin" / "gs"
    ghostscript.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/ran\n[ "$1" = --version ] && echo 10.0 && exit 0\nexit 1\n'
    )
    ghostscript.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    pictures(tmp_path / "pics")
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 16\n%%EndComments\nshowpage\n%%EOF\n"
    (tmp_path / "pics" / "a" / "evil.png").write_bytes(script)
    code, _, err = cli("compare", "pics", "--model", "centroid", "--skip-bad")
    assert code == 0
    assert "1 unreadable images skipped: evil.png" in err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("scale", "dtype"), [(257, np.uint16), (1 / 255, np.float32)])
def test_gray_images_of_more_bits_are_scaled(answer, tmp_path, scale, dtype):
    from kway.tables.sources.images import ImageForm, pixels

    if dtype == np.float32:
        from PIL import Image

        Image.fromarray(np.full((8, 8), 90 * scale, dtype)).save("x.tiff")
        assert set(pixels(Path("x.tiff"), ImageForm(8, 8, 1))) == {90}
        return
    pictures(tmp_path / "pics", scale, dtype)
    assert set(pixels(tmp_path / "pics" / "b" / "1.png", ImageForm(16, 16, 1))) == {95}
    assert answer("compare", "pics", "--model", "centroid")["models"][0]["accuracy"] == 1

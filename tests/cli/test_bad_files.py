"""Files that are empty, damaged, absurd or bombs: a sentence that says what, got, do; no raw error, no hang."""

import gzip
import io
import os
import signal
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

X, Y = np.arange(24.0).reshape(12, 2), np.arange(12) % 2


def npz(**arrays):
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def false_shape():
    """An npy header that claims a terabyte."""
    array = io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**5)})
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x.npy", array.getvalue())
    return out.getvalue()


def zip_bomb():
    """8 GB of zeros in 8 MB."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("x.npy", npy_of_zeros())
    raw = bytearray(out.getvalue())
    place = raw.rindex(b"PK\x01\x02")
    raw[place + 24 : place + 28] = struct.pack("<I", 2**32 - 2)  # the size that the directory declares
    return bytes(raw)


def npy_of_zeros():
    out = io.BytesIO()
    np.save(out, np.zeros((1000, 100)))
    return out.getvalue()


FILES = {
    "empty.svm": (b"", "it is empty"),
    "blank.svm.gz": (gzip.compress(b" \n"), "it is empty"),
    "words.svm": (b"hello there\nyou\n", "cannot be read as libsvm"),
    "nothing.svm": (b"1\n0\n", "2 rows and no value in any"),
    "negative.svm": (b"1 -5:1\n", "cannot be read as libsvm"),
    "huge.svm": (b"1 99999999999999999999:1\n0 1:1\n", "cannot be read as libsvm"),
    "far.svm": (b"1 2000000000:1\n0 1:1\n", "a feature with the number 2,000,000,000"),
    "nan.svm": (b"nan 1:1\n0 1:1\n", "not finite"),
    "cut.svm.gz": (gzip.compress(b"1 1:1\n" * 1000)[:-20], "cannot be read as gzip"),
    "scalar.npz": (npz(x=np.float64(3.0), y=Y), "x of scalar.npz has shape ()"),
    "line.npz": (npz(x=np.arange(12.0), y=Y), "x of line.npz has shape (12,)"),
    "label.npz": (npz(x=X, y=np.int64(1)), "12 rows and 0 labels"),
    "names.npz": (npz(x=X, y=Y, label_names=np.array("ab")), "label_names of names.npz has shape ()"),
    "few.npz": (npz(x=X, y=Y, label_names=np.array(["a"])), "whole numbers from 0 to 0, got dtype int64 from 0 to 1"),
    "split.npz": (npz(x=X, y=Y, split=np.full((12, 2), "train")), "split of shape (12, 2)"),
    "short.npz": (npz(x=X, y=Y, split=np.array(["train"] * 5)), "split of shape (5,)"),
    "nolabels.npz": (npz(x=X, split=np.array(["train", "test"] * 6)), "has no labels"),
    "halflabels.npz": (npz(x=X, y=Y[:5], split=np.array(["train", "test"] * 6)), "labels of shape (5,)"),
    "objects.npz": (npz(x=np.array([{}, 1], object)), "cannot be read as npz"),
    "norows.npz": (npz(x=np.zeros((0, 3)), y=np.zeros(0, int)), "no rows"),
    "text.npz": (b"hello", "cannot be read as npz"),
    "liar.npz": (false_shape(), "cannot be read as npz"),
    "bomb.npz": (zip_bomb(), "after decompression"),
    "cut.csv.gz": (gzip.compress(b"a,k\n" + b"1,x\n" * 1000)[:-12], "cannot be read as gzip"),
    "not.csv.gz": (b"a,k\n1,x\n", "cannot be read as gzip"),
    "bad.csv.gz": (b"\x1f\x8b\x08\x00" + bytes(20), "cannot be read as gzip"),
    "empty.csv": (b"", "it is empty"),
    "bad.jsonl": (b'{"a": 1}\n{oops\n', "line 2 of bad.jsonl is not JSON"),
    "list.jsonl": (b'{"a": 1}\n[1]\n', "line 2 of list.jsonl is a JSON list"),
    "bad.parquet": (b"PAR1 no more", "bad.parquet cannot be read"),
    "strange.xyz": (b"a b\n", "or give the column separator: sep= (--sep)"),
}


@pytest.mark.parametrize("name", FILES)
def test_one_sentence(cli, name):
    content, message = FILES[name]
    Path(name).write_bytes(content)
    options = [] if name.endswith((".npz", ".svm", ".gz")) and "csv" not in name else ["-t", "k"]
    code, out, err = cli("fit", f"./{name}", "--model", "centroid", *options)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert "KWAY_TRACEBACK" not in err


def test_a_gzip_bomb(cli, monkeypatch):
    monkeypatch.setattr("kway.memory.BLOCK_BYTES", 1 << 16)
    Path("bomb.csv.gz").write_bytes(gzip.compress(b"a,k\n" + b"0" * (8 << 20)))
    code, _, err = cli("fit", "bomb.csv.gz", "-t", "k")
    assert code == 1
    assert "after decompression" in err
    assert "decompress it yourself" in err


def bomb_png(side=40_000):
    """A png whose header says 1.6 billion pixels."""
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))  # noqa: E731
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    body = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def images(n=12):
    pillow = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for kind, level in (("dark", 40), ("light", 200)):
        Path("images", kind).mkdir(parents=True)
        for i in range(n):
            pixels = rng.integers(level - 30, level + 30, (8, 8)).astype(np.uint8)
            pillow.fromarray(pixels).save(Path("images", kind, f"{i}.png"))


@pytest.mark.parametrize("side", [11_000, 40_000])
def test_an_image_bomb(cli, side):
    images()
    Path("images/dark/bomb.png").write_bytes(bomb_png(side))
    code, _, err = cli("fit", "images", "--model", "centroid")
    assert code == 1
    assert "bomb.png cannot be read" in err
    assert "pixels" in err
    assert err.count("\n") == 1
    assert cli("fit", "images", "--model", "centroid", "--skip-bad")[0] == 0


@pytest.fixture
def no_hang():
    """An error after two minutes, where the test would wait for ever."""

    def late(*_):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_a_pipe_does_not_hang(cli, no_hang):
    images()
    os.mkfifo("images/dark/pipe.png")
    os.mkfifo("pipe.csv")
    os.mkfifo("pipe.png")
    assert cli("fit", "images", "--model", "centroid")[0] == 0
    for name in ("pipe.csv", "pipe.png"):
        code, _, err = cli("predict", "model.kway", name)
        assert code == 1
        assert f"{name} is neither a file nor a folder" in err

"""Files that were cut, altered, or never were model files: always a ModelFileError, never another error."""

import contextlib
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kway
from kway import modelfile
from kway.errors import ModelFileError
from kway.modelfile import container

same_file = settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])


def header_end(content: bytes) -> int:
    return 8 + int.from_bytes(content[:8], "little")


def flipped(content: bytes, at: int, bit: int) -> bytes:
    return content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :]


@pytest.fixture
def damaged(model, tmp_path):
    """Write altered content beside the model; its path."""
    path = tmp_path / "damaged.kway"

    def write(content: bytes):
        path.unlink(missing_ok=True)  # the old one may still be mapped
        path.write_bytes(content)
        return path

    return write


@same_file
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flip_in_the_header_is_found_at_load(model, damaged, place, bit):
    content = model.read_bytes()
    path = damaged(flipped(content, int(place * header_end(content)), bit))
    with pytest.raises(ModelFileError):
        kway.load(path)


def test_every_byte_of_the_header_counts(model, damaged):
    content = model.read_bytes()
    for at in range(header_end(content)):
        with pytest.raises(ModelFileError):
            kway.load(damaged(flipped(content, at, 0)))


@same_file
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flip_in_the_payload_is_found_by_verify(model, damaged, place, bit):
    content = model.read_bytes()
    start = header_end(content)
    path = damaged(flipped(content, start + int(place * (len(content) - start)), bit))
    with pytest.raises(ModelFileError, match="altered"):
        modelfile.verify(path)
    with pytest.raises(ModelFileError):
        kway.load(path, verify=True)
    with contextlib.suppress(ModelFileError):
        kway.load(path)  # does not read the payload, so it may succeed


@same_file
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_short_anywhere(model, damaged, share):
    content = model.read_bytes()
    with pytest.raises(ModelFileError):
        kway.load(damaged(content[: int(share * len(content))]))


@same_file
@given(content=st.binary(max_size=300))
def test_any_other_file(damaged, content):
    with pytest.raises(ModelFileError, match="not a kway model file"):
        kway.load(damaged(content))


def test_bytes_after_the_end(model, damaged):
    with pytest.raises(ModelFileError, match="after its content"):
        kway.load(damaged(model.read_bytes() + b"\0"))


def test_a_safetensors_file_of_somebody_else(tmp_path):
    from safetensors.numpy import save_file

    save_file({"w": np.zeros(3)}, tmp_path / "w.safetensors")
    with pytest.raises(ModelFileError, match="no kway manifest"):
        kway.load(tmp_path / "w.safetensors")


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(ModelFileError, match="No such file"):
        kway.load(tmp_path / "nothing.kway")
    with pytest.raises(ModelFileError, match="directory"):
        kway.load(tmp_path)


def test_a_newer_format_says_upgrade(fitted, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(container, "FORMAT_VERSION", 2)
        fitted.save(tmp_path / "m.kway")
    with pytest.raises(ModelFileError, match=r"format 2, written by kway .* upgrade"):
        kway.load(tmp_path / "m.kway")


def test_another_spelling_of_the_same_header_is_found(model, damaged):
    content = model.read_bytes()
    end = header_end(content)
    loose = json.dumps(json.loads(content[8:end])).encode()
    with pytest.raises(ModelFileError, match="altered"):
        kway.load(damaged(len(loose).to_bytes(8, "little") + loose + content[end:]))


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [3, 5]},
        {"shape": [-3, -4]},
        {"shape": [3.0, 4]},
        {"shape": None},
        {"dtype": "F8"},
        {"dtype": ["F64"]},
        {"data_offsets": [0]},
        {"data_offsets": [8, 104]},
        {"data_offsets": [0, 96, 3]},
        {"shape": [0, 2**70], "data_offsets": [0, 0]},
    ],
    ids=str,
)
def test_a_table_that_makes_no_sense(model, damaged, change):
    """A header that a hand has altered, tensor by tensor: refused before anything is mapped."""
    content = model.read_bytes()
    end = header_end(content)
    document = json.loads(content[8:end])
    document["means"] |= change
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(ModelFileError):
        kway.load(damaged(len(text).to_bytes(8, "little") + text + content[end:]))


@pytest.mark.parametrize(
    "manifest",
    [
        {"class": "TinyClassifier"},
        {"class": "Popen", "params": {}, "facts": {}, "notes": {}, "kinds": {}},
        {"class": "TinyClassifier", "params": {"colour": 1}, "facts": {}, "notes": {}, "kinds": {}},
        {"class": "TinyClassifier", "params": {}, "facts": {}, "notes": {}, "kinds": {"classes_": "text"}},
        {"class": "TinyClassifier", "params": {}, "facts": {}, "notes": {}, "kinds": {}},
    ],
    ids=["no params", "foreign class", "unknown parameter", "missing text", "missing facts"],
)
def test_a_well_formed_file_with_the_wrong_content(tmp_path, manifest):
    """Digests keep no secret: anybody can write a consistent file, so the content is checked too."""
    container.write(tmp_path / "m.kway", manifest, {"classes_": np.arange(3)})
    with pytest.raises(ModelFileError):
        kway.load(tmp_path / "m.kway")


def test_damaged_text_offsets_are_found(model, damaged):
    content = model.read_bytes()
    info = {t.name: t for t in modelfile.info(model).tensors}["classes_.offsets"]
    start = header_end(content)
    wrong = np.array([0, 9, 3, 10], np.int64).tobytes()
    path = damaged(content[: start + info.start] + wrong + content[start + info.end :])
    with pytest.raises(ModelFileError, match="offsets"):
        kway.load(path)


def test_a_file_without_labels(tmp_path):
    manifest = {"class": "TinyClassifier", "params": {}, "facts": {}, "notes": {}, "kinds": {}}
    container.write(tmp_path / "m.kway", manifest, {})
    with pytest.raises(ModelFileError, match="no labels"):
        kway.load(tmp_path / "m.kway")


def test_an_array_of_a_kind_that_files_do_not_hold(tmp_path):
    with pytest.raises(ModelFileError, match="dtype complex128"):
        container.write(tmp_path / "m.kway", {}, {"a": np.zeros(2, complex)})
    assert not list(tmp_path.iterdir())

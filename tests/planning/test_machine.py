"""Memory and rates of this machine: read from where the kernel says, measured once, kept whole or not at all."""

import json
from dataclasses import replace

import pytest

import kway
from kway.data.outputs.cache_folder import cache_folder
from kway.planning import machine, rates, words
from kway.planning.calibrate import GpuRates
from kway.planning.rates import Rates


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("KWAY_CACHE", str(tmp_path))
    rates._kept.cache_clear()
    yield tmp_path / "rates"
    rates._kept.cache_clear()


def test_available_memory(monkeypatch, tmp_path):
    monkeypatch.delenv("KWAY_MEMORY", raising=False)
    assert 2**20 < machine.available_bytes() < 2**50
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    monkeypatch.setattr(machine, "MEMINFO", tmp_path / "meminfo")
    assert machine.available_bytes() <= 2048 * 1024
    monkeypatch.setenv("KWAY_MEMORY", "3MiB")
    assert machine.available_bytes() == 3 * 2**20


def test_a_cgroup_holds_it_below(monkeypatch, tmp_path):
    group = tmp_path / "groups" / "a" / "b"
    group.mkdir(parents=True)
    (tmp_path / "mine").write_text("0::/a/b\n")
    for folder, most in ((group, "max"), (group.parent, "1000000")):
        (folder / "memory.max").write_text(most + "\n")
        (folder / "memory.current").write_text("900000\n")
        (folder / "memory.stat").write_text("anon 5\ninactive_file 300000\n")
    monkeypatch.setattr(machine, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "MINE", tmp_path / "mine")
    monkeypatch.delenv("KWAY_MEMORY", raising=False)
    machine._groups.cache_clear()
    assert machine.available_bytes() == 400_000
    machine._groups.cache_clear()


def test_rates_are_measured_once(kept, monkeypatch):
    calls = []
    measured = replace(Rates(), product=1e12)
    monkeypatch.setattr("kway.planning.calibrate.calibrate", lambda: calls.append(1) or measured)
    assert rates.known() == Rates(cores=rates.cores())
    assert rates.machine_rates() == measured
    assert rates.machine_rates() == rates.known() == measured
    assert kway.plan(100, 10, 2).rates == measured
    assert len(calls) == 1
    rates.machine_rates(again=True)
    assert len(calls) == 2
    assert [path.suffix for path in kept.iterdir()] == [".json"]


def test_a_gpu_is_measured_once_and_kept_beside_the_rest(kept, monkeypatch):
    calls, there = [], GpuRates(7e14, 5e13, 1e10, 140e9)
    monkeypatch.setattr("kway.planning.calibrate.gpu_rates", lambda: calls.append(1) or there)
    first = rates.known_with_gpu()
    assert first == rates.known_with_gpu() == rates.known()
    assert first.gpu_full == 5e13
    assert len(calls) == 1
    monkeypatch.setattr("kway.planning.calibrate.calibrate", lambda: replace(Rates(), product=1e12))
    assert rates.machine_rates().product == rates.known().product == 1e12
    assert rates.known().gpu == 7e14
    assert len(calls) == 1


def test_without_a_gpu_nothing_of_one_is_kept(kept, monkeypatch):
    monkeypatch.setattr("kway.planning.calibrate.gpu_rates", GpuRates)
    assert rates.known_with_gpu() == rates.known()
    assert not kept.exists() or not list(kept.iterdir())


def test_rates_of_an_earlier_version_are_read(kept):
    measured = replace(Rates(), product=1e12)
    kept.mkdir(parents=True, exist_ok=True)
    rates._path().write_text(json.dumps(measured.record() | {"product_one": 60e9, "disk": 3e8}))
    rates._kept.cache_clear()
    assert rates.known() == measured


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", "null", '{"product": "quick"}', json.dumps(Rates().record() | {"product": 0})]
)
def test_a_damaged_file_is_no_rates(kept, text, monkeypatch):
    monkeypatch.setattr("kway.planning.calibrate.calibrate", Rates)
    rates.machine_rates()
    (path,) = kept.iterdir()
    path.write_text(text)
    rates._kept.cache_clear()
    assert rates._kept(path) is None
    assert rates.machine_rates() == Rates()


def test_a_folder_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KWAY_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr("kway.planning.calibrate.calibrate", Rates)
    rates._kept.cache_clear()
    with pytest.warns(UserWarning, match="not kept"):
        assert rates.machine_rates() == Rates()


def test_without_a_home(monkeypatch):
    for name in ("KWAY_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pathlib.Path.home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert "kway-" in cache_folder().name


def test_sizes_as_people_write_them():
    assert words.bytes_of("24GB") == 24 * 10**9
    assert words.bytes_of("1e9") == 10**9
    assert words.bytes_of("2 kib") == 2048
    assert words.time(45) == "45 s"
    assert words.time(1e12) == "32K years"
    assert words.size(999) == "999 B"

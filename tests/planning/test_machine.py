"""The memory of this machine, read from where the kernel reports it."""

from kway import memory, units
from kway.tables.outputs import cache_folder


def test_available_memory(monkeypatch, tmp_path):
    monkeypatch.delenv("KWAY_MEMORY", raising=False)
    assert 2**20 < memory.available_bytes() < 2**50
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    assert memory.available_bytes() <= 2048 * 1024
    monkeypatch.setenv("KWAY_MEMORY", "3MiB")
    assert memory.available_bytes() == 3 * 2**20


def test_a_cgroup_holds_it_below(monkeypatch, tmp_path):
    group = tmp_path / "groups" / "a" / "b"
    group.mkdir(parents=True)
    (tmp_path / "mine").write_text("0::/a/b\n")
    for folder, most in ((group, "max"), (group.parent, "1000000")):
        (folder / "memory.max").write_text(most + "\n")
        (folder / "memory.current").write_text("900000\n")
        (folder / "memory.stat").write_text("anon 5\ninactive_file 300000\n")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(memory, "OWN_CGROUP", tmp_path / "mine")
    monkeypatch.delenv("KWAY_MEMORY", raising=False)
    memory._list_cgroups.cache_clear()
    assert memory.available_bytes() == 400_000
    memory._list_cgroups.cache_clear()


def test_without_a_home(monkeypatch):
    for name in ("KWAY_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pathlib.Path.home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert "kway-" in cache_folder().name


def test_sizes_as_people_write_them():
    assert units.parse_bytes("24GB") == 24 * 10**9
    assert units.parse_bytes("1e9") == 10**9
    assert units.parse_bytes("2 kib") == 2048
    assert units.format_time(45) == "45 s"
    assert units.format_time(1e12) == "32K years"
    assert units.format_bytes(999) == "999 B"

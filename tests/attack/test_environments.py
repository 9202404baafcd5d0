"""Bare environments: installed read-only, without a home."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kway

FIT = """
import warnings
warnings.simplefilter("error" if {strict} else "ignore")
import kway, sys
from kway.kernels import jit
model = kway.SoftmaxClassifier().fit([[0.0], [1.0]], ["a", "b"])  # four kernels: others need a dozen
print(kway.__file__, jit.kernel_cache(), *model.predict([[0.9]]))
"""


@pytest.fixture
def installed(tmp_path):
    """A read-only copy of the package, as somebody else installed it."""
    site = tmp_path / "site"
    shutil.copytree(Path(kway.__file__).parent, site / "kway", ignore=shutil.ignore_patterns("__pycache__"))
    paths = [site, *site.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield site
    for path in paths:
        path.chmod(0o755 if path.is_dir() else 0o644)


def run_bare(site, temporary, strict, **more):
    """FIT as a user who may write to `temporary` alone; root is made one whom file modes bind."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "TMPDIR": str(temporary), **more}
    environment |= {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent/cache", "PYTHONDONTWRITEBYTECODE": "1"}
    code = "import numba.core.caching as c\n" + BLOCKED + FIT.format(strict=strict)
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, cwd="/"
    )


BLOCKED = """
import os
def refuse(self):
    raise OSError("read-only")
for name in ("InTreeCacheLocator", "InTreeCacheLocatorFsAgnostic", "UserWideCacheLocator", "_InTreeCacheLocator",
             "_UserWideCacheLocator"):
    if hasattr(c, name) and os.getuid() == 0:  # modes do not bind root
        getattr(c, name).ensure_cache_path = refuse
"""


def test_read_only_and_homeless_keeps_kernels_in_a_folder_of_its_own(installed, tmp_path):
    temporary = tmp_path / "t"
    temporary.mkdir()
    done = run_bare(installed, temporary, strict=True)
    assert done.returncode == 0, done.stderr
    assert str(installed) in done.stdout
    assert done.stdout.split()[-1] == "b"
    (folder,) = temporary.glob("kway-kernels-*")
    assert folder.stat().st_mode & 0o077 == 0
    assert list(folder.rglob("*.nbi"))


def test_a_folder_that_others_could_write_to_is_not_used(installed, tmp_path):
    temporary = tmp_path / "t"
    folder = temporary / f"kway-kernels-{os.getuid()}"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    done = run_bare(installed, temporary, strict=False)
    assert done.returncode == 0, done.stderr
    assert "cache=False" in done.stdout
    assert not list(folder.iterdir())

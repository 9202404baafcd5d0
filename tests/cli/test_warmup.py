"""`kway warmup`, and the note on compiling kernels."""

import pytest

from kway.cli import warmup


@pytest.mark.parametrize("compiled", [True, False])
def test_compiling_is_announced_if_there_are_no_kernels(cli, monkeypatch, compiled):
    monkeypatch.setattr(warmup, "kernels_are_compiled", lambda: compiled)
    code, _, err = cli("compare", "iris", "--model", "centroid")
    assert code == 0
    assert ("Compiling kernels, once per machine" in err) != compiled


def test_kernels_are_found_on_disk(tmp_path, monkeypatch):
    from kway.kernels.linear import fused

    class Kernel:
        class stats:
            cache_path = str(tmp_path)

    monkeypatch.setattr(fused, "fused_losses", Kernel)
    assert not warmup.kernels_are_compiled()
    (tmp_path / "fused.nbi").touch()
    assert warmup.kernels_are_compiled()


def test_warmup_fits_small_problems(answer, monkeypatch):
    fitted = []
    monkeypatch.setattr("kway.fit", lambda data, **options: fitted.append(data))
    assert answer("warmup")["seconds"] >= 0
    assert fitted == ["iris", "digits"]

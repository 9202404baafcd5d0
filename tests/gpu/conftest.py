import numpy as np
import pytest


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    """torch on the processor, and the GPU where there is one."""
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    from kway.rows.gpu.device import Device

    return Device(request.param)


@pytest.fixture
def by_device(device, monkeypatch):
    """recipe -> the recipe of device="cuda", on the device under test."""
    from dataclasses import replace

    from kway.rows.gpu.device import ChosenDevice
    from kway.search import flat as devices

    monkeypatch.setattr(devices, "resolve", lambda word, pays=True: ChosenDevice(device, "on the device under test"))
    return lambda recipe: replace(recipe, device="cuda")


@pytest.fixture
def fetched(monkeypatch):
    """Shapes of the tensors that were made arrays, or brought to the host."""
    torch, shapes = pytest.importorskip("torch"), []
    for name in ("cpu", "numpy", "tolist", "__array__"):
        real = getattr(torch.Tensor, name)

        def told(self, *args, real=real, **kwargs):
            shapes.append(tuple(self.shape))
            return real(self, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, told)
    return shapes


@pytest.fixture
def copied(monkeypatch):
    """(shape, bytes) of the tensors that were made arrays, or brought to the host."""
    torch, told = pytest.importorskip("torch"), []

    def watched(name):
        real = getattr(torch.Tensor, name)

        def watch(self, *args, **kwargs):
            found = real(self, *args, **kwargs)
            if name != "to" or (self.is_cuda and not found.is_cuda):
                told.append((tuple(self.shape), self.numel() * self.element_size()))
            return found

        return watch

    for name in ("cpu", "numpy", "tolist", "__array__", "to"):
        monkeypatch.setattr(torch.Tensor, name, watched(name))
    return told


def _with_a_huge_row(rows):
    rows[len(rows) // 2] = 1e6
    return rows


HOSTILE = {  # (rng, normal rows (n, d)) -> rows that break careless searches
    "gaussian": lambda rng, rows: rows,
    "heavy tails": lambda rng, rows: rows / np.abs(rng.standard_normal((len(rows), 1))),
    "far origin": lambda rng, rows: rows + 100,
    "copies": lambda rng, rows: rows[rng.integers(0, max(1, len(rows) // 3), len(rows))],
    "one row": lambda rng, rows: np.repeat(rows[:1], len(rows), axis=0),
    "thin": lambda rng, rows: rng.standard_normal((len(rows), 2)) @ rng.standard_normal((2, rows.shape[1])),
    "one huge row": lambda rng, rows: _with_a_huge_row(rows),
    "integers": lambda rng, rows: rng.integers(0, 3, rows.shape),
    "zeros among them": lambda rng, rows: rows * (rng.random((len(rows), 1)) > 0.2),
    "tiny": lambda rng, rows: rows * 1e-18,
}


def hostile(kind, n, d, seed=0):
    """Rows (n, d) float32 of one kind."""
    rng = np.random.default_rng(seed)
    return HOSTILE[kind](rng, rng.standard_normal((n, d), dtype=np.float32)).astype(np.float32)

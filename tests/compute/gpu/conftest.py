import numpy as np
import pytest


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    """torch on the processor, and the GPU where there is one."""
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    from kway.compute.gpu.device import Device

    return Device(request.param)


def hostile(n, d, seed=0):
    """Sets of rows (n, d) float32 that break careless searches, by name."""
    rng = np.random.default_rng(seed)
    base = rng.standard_normal((n, d)).astype(np.float32)
    huge = base.copy()
    huge[n // 2] = 1e6
    return {
        "gaussian": base,
        "heavy tails": rng.standard_t(1.5, (n, d)).astype(np.float32),
        "far origin": base + np.float32(100),
        "copies": base[rng.integers(0, max(1, n // 3), n)],
        "one row": np.repeat(base[:1], n, axis=0),
        "thin": (rng.standard_normal((n, 2)) @ rng.standard_normal((2, d))).astype(np.float32),
        "one huge row": huge,
        "integers": rng.integers(0, 3, (n, d)).astype(np.float32),
        "zeros among them": base * (rng.random((n, 1)) > 0.2).astype(np.float32),
        "tiny": base * np.float32(1e-18),
    }

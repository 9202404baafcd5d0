"""Devices: what each word means, arrays there and back, errors that say what to do."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kway.errors import BudgetError, InputError
from kway.rows.gpu.device import Device, has_gpu, is_tensor, load_torch, resolve


def test_the_cpu_needs_nothing():
    assert resolve("cpu").device is None
    assert not is_tensor(np.ones(2))


def test_an_unknown_device_is_refused_with_those_there_are():
    with pytest.raises(InputError, match="'cpu', 'cuda', 'auto'"):
        resolve("tpu")


@pytest.mark.parametrize("name", ["cuda:", "cuda:x", "cuda:-1", "mps", "cuda:0:1"])
def test_names_that_are_no_device_are_refused(name):
    with pytest.raises(InputError, match="or 'cuda:N', got"):
        resolve(name)


def test_tensors_of_other_kinds_of_device_are_refused():
    with pytest.raises(InputError, match=r"NVIDIA GPUs, got a tensor on 'mps:0'; pass X\.cpu\(\)"):
        Device("mps:0")


def test_rocm_is_refused_and_auto_goes_to_the_cpu(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.version, "hip", "7.1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(InputError, match=r"built for ROCm 7\.1; use device='cpu'"):
        resolve("cuda")
    assert resolve("auto").device is None


def test_a_gpu_has_a_number(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve("cuda:1").device == Device("cuda:1")
    assert [has_gpu(name) for name in ("cuda", "cuda:1", "cuda:2")] == [True, True, False]
    with pytest.raises(InputError, match="device='cuda:2' does not exist, PyTorch finds 2: use 'cuda:0' to 'cuda:1'"):
        resolve("cuda:2")


def test_searches_and_fits_on_a_numbered_gpu_leave_the_current_one_alone():
    torch = pytest.importorskip("torch")
    if not has_gpu():
        pytest.skip("no GPU")
    import kway
    from kway.search import Flat

    name = f"cuda:{torch.cuda.device_count() - 1}"
    rng = np.random.default_rng(0)
    rows, y = rng.standard_normal((5000, 24)).astype(np.float32), rng.integers(0, 4, 5000)
    index = Flat(device=name).build(rows)
    assert str(index._main.device.name) == name
    np.testing.assert_array_equal(index.nearest(rows[:50], 5).ids, Flat().build(rows).nearest(rows[:50], 5).ids)
    found = index.nearest(torch.from_numpy(rows[:50]).to(name), 5)
    assert str(found.ids.device) == name
    model = kway.SoftmaxClassifier(device=name).fit(rows, y)
    np.testing.assert_allclose(model.objective_, kway.SoftmaxClassifier().fit(rows, y).objective_, rtol=1e-3)
    assert torch.cuda.current_device() == 0


def test_without_torch_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)  # importing it fails
    with pytest.raises(InputError, match=r"pip install torch.*device='cpu'"):
        load_torch()


def test_auto_is_the_cpu_where_it_does_not_pay():
    assert resolve("auto", pays=False).device is None


def test_cuda_without_a_gpu_is_refused_and_auto_goes_to_the_cpu():
    pytest.importorskip("torch")
    if has_gpu():
        pytest.skip("there is a GPU")
    with pytest.raises(InputError, match="finds none"):
        resolve("cuda")
    assert resolve("auto").device is None
    assert "no GPU" in resolve("auto").why


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_arrays_go_there_and_back(name):
    torch = pytest.importorskip("torch")
    if name == "cuda" and not has_gpu():
        pytest.skip("no GPU")
    device = Device(name)
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    given.flags.writeable = False
    there = device.put(given, torch.float64)
    assert is_tensor(there)
    assert there.dtype == torch.float64
    assert there.device.type == name
    np.testing.assert_array_equal(device.fetch(there), given)
    assert device.put(there) is there
    assert device.zeros((2,), "int64").tolist() == [0, 0]


def test_out_of_memory_becomes_an_error_with_the_figures():
    torch = pytest.importorskip("torch")
    with (
        pytest.raises(BudgetError, match=r"the rows needs 3\.0 GiB on cpu.*device='cpu'"),
        Device("cpu").room("the rows", 3 * 2**30),
    ):
        raise torch.OutOfMemoryError("none left")


def test_products_are_float32_whatever_the_caller_allowed():
    torch = pytest.importorskip("torch")
    torch.set_float32_matmul_precision("high")
    try:
        with Device("cpu").full_precision():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_full_precision_lasts_until_the_last_is_out():
    torch = pytest.importorskip("torch")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        first, second = Device("cpu").full_precision(), Device("cpu").full_precision()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_float32_matmul_precision() == "highest"
        second.__exit__(None, None, None)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def test_bfloat16_rows_count_as_float32():
    torch = pytest.importorskip("torch")
    from kway import NeighborsClassifier, SoftmaxClassifier

    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    rows = torch.from_numpy(rng.normal(size=(90, 4)) + 2 * y[:, None]).to(torch.bfloat16)
    for model in (SoftmaxClassifier(device="cpu"), NeighborsClassifier(device="cpu")):
        model.fit(rows, y)
        np.testing.assert_array_equal(model.predict(rows).numpy(), model.predict(rows.float().numpy()))


def test_copies_in_many_threads_leave_the_filters_of_warnings_alone():
    pytest.importorskip("torch")
    device, rows = Device("cpu"), np.ones((2, 2))
    rows.flags.writeable = False
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: device.put(rows), range(2000)))
    assert warnings.filters == before

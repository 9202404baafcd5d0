"""Devices: what each word means, arrays there and back, errors that say what to do."""

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


def test_without_torch_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)  # importing it fails
    with pytest.raises(InputError, match=r"kway\[gpu\].*device='cpu'"):
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

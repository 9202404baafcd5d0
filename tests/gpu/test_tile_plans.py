"""Launch parameters fit the shared memory of real GPUs, for every number of columns."""

import pytest

from kway.rows.gpu.tile_plans import SPARE_BYTES, TILE, plan_int8, softmax_stages

LIMITS = {"T4": 64 * 1024, "RTX 4090": 99 * 1024, "A100": 163 * 1024, "H200": 227 * 1024}
CAPABILITIES = {"RTX 4090": 89, "A100": 80, "H200": 90}


def scan_bytes(width, plan):
    """Return the shared memory of the scan: one tile of queries and one of rows per chunk that is in flight."""
    tile, chunks = TILE * plan.chunk, width // plan.chunk
    tiles = plan.scan_stages * (2 * chunks - 1) + 1 if plan.unroll else 2 * plan.scan_stages
    return tiles * tile + SPARE_BYTES


@pytest.mark.parametrize("gpu", LIMITS)
def test_every_width_has_a_plan_that_fits(gpu):
    pytest.importorskip("torch")
    from kway.rows.gpu.int8_search import padded_width

    for d in (*range(2, 400), *range(400, 4097, 37), 4096):
        width = padded_width(d)
        plan = plan_int8(width, LIMITS[gpu])
        assert plan is not None
        assert width >= d
        assert width % plan.chunk == 0
        assert scan_bytes(width, plan) <= LIMITS[gpu]
        assert plan.expand_stages * 2 * TILE * plan.chunk + SPARE_BYTES <= LIMITS[gpu]


def test_the_largest_gpus_keep_all_chunks_in_flight_up_to_256_columns():
    assert plan_int8(256, LIMITS["H200"]).unroll
    assert not plan_int8(384, LIMITS["H200"]).unroll
    assert plan_int8(384, LIMITS["H200"]).scan_stages == 3
    assert plan_int8(128, 2**14) is None
    assert [softmax_stages(limit) for limit in LIMITS.values()] == [0, 1, 2, 4]


@pytest.mark.parametrize(
    ("gpu", "width"), [("H200", 64), ("H200", 256), ("H200", 2048), ("A100", 384), ("RTX 4090", 384)]
)
def test_compiled_kernels_need_no_more_than_the_limit(gpu, width):
    """Triton compiles for a GPU that is not present and reports the shared memory of the kernel."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kway.rows.gpu import search_kernels as kernels

    plan, target = plan_int8(width, LIMITS[gpu]), GPUTarget("cuda", CAPABILITIES[gpu], 32)

    def shared(kernel, arguments, constants, stages):
        signature = arguments | dict.fromkeys(constants, "constexpr")
        aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(arguments.values()) if kind[0] == "*"}
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
        options = {"num_warps": 4, "num_stages": stages, "enable_fp_fusion": True}
        return triton.compile(source, target=target, options=options).metadata.shared

    arguments = {"Q": "*i8", "qc": "*fp32", "rows": f"tensordesc<i8[128, {plan.chunk}]>", "tc": "*fp32", "ts": "*fp32"}
    arguments |= {"out": "*u8", "nqt": "i32", "nqp": "i32", "t0": "i32", "t1": "i32"}
    constants = {"DP": width, "BK": plan.chunk, "BM": TILE, "TILES": 128, "SAMPLE": False}
    constants |= {"STAGES": plan.scan_stages, "UNROLL": plan.unroll}
    assert shared(kernels.scan, arguments, constants, plan.scan_stages) <= scan_bytes(width, plan)

    names = {"flags": "*u8", "Q": "*i8", "fine": "*i8", "qc": "*fp32", "X": "*i8", "tc": "*fp32", "cnt": "*i32"}
    arguments = names | {"ids": "*i32", "room": "*i32", "nqp": "i32", "t0": "i32"}
    constants = {"DP": width, "BK": plan.chunk, "CAP": 4096, "BQ": 2048, "BH": 32, "STAGES": plan.expand_stages}
    assert shared(kernels.expand, arguments, constants, plan.expand_stages) <= LIMITS[gpu]


def test_the_drawn_shapes_are_right_on_the_cpu(tmp_path):
    pytest.importorskip("torch")
    from tests.gpu.device_shapes import main

    assert main(["--seconds", "2", "--device", "cpu", "--largest", "400", "--out", str(tmp_path / "out.json")]) == 0

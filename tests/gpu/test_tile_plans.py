"""Launch parameters fit the shared memory of real GPUs, for every number of columns."""

import pytest

from kway.rows.gpu.tile_plans import ROTATED, SPARE_BYTES, TILE, plan_int8, softmax_stages

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

    from kway.rows.gpu import int8_kernels as kernels

    plan, target = plan_int8(width, LIMITS[gpu]), GPUTarget("cuda", CAPABILITIES[gpu], 32)

    def shared(kernel, arguments, constants, stages):
        signature = arguments | dict.fromkeys(constants, "constexpr")
        aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(arguments.values()) if kind[0] == "*"}
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
        options = {"num_warps": 4, "num_stages": stages, "enable_fp_fusion": True}
        return triton.compile(source, target=target, options=options).metadata.shared

    arguments = {"digits": "*i8", "constants": "*fp32", "tiles": f"tensordesc<i8[128, {plan.chunk}]>", "upper": "*fp32"}
    arguments |= {"out": "*i32"} | dict.fromkeys(
        ("n_blocks", "n_padded", "first_tile", "last_tile", "tiles_each"), "i32"
    )
    constants = {"WIDTH": width, "CHUNK": plan.chunk, "BLOCK": TILE}
    constants |= {"STAGES": plan.scan_stages, "UNROLL": plan.unroll}
    for flags, kind in ((True, "*u8"), (False, "*i32")):
        arguments["out"], constants["FLAGS"] = kind, flags
        assert shared(kernels.scan_tiles, arguments, constants, plan.scan_stages) <= scan_bytes(width, plan)

    arguments = {"scanned": "*u8", "digits": "*i8", "fine_digits": "*i8", "constants": "*fp32", "tiles": "*i8"}
    arguments |= {"order": "*i32", "upper": "*fp32", "counts": "*i32", "lists": "*i32", "buffer": "*i32"}
    arguments |= {"n_padded": "i32", "first_tile": "i32"}
    constants = {"WIDTH": width, "CHUNK": plan.chunk, "CAPACITY": 4096, "GATHERED": 32, "STAGES": plan.expand_stages}
    for flags, kind, queries in ((True, "*u8", 128), (True, "*u8", 2048), (False, "*i32", 128), (False, "*i32", 512)):
        arguments["scanned"] = kind
        constants |= {"FLAGS": flags, "QUERIES": queries}
        assert shared(kernels.list_candidates, arguments, constants, plan.expand_stages) <= LIMITS[gpu]

    arguments = {"queries": "*fp32", "center": "*fp64", "rotation": "*fp64", "operands": "*fp64"}
    arguments |= {"n_queries": "i32", "D": "i32"}
    for centered, by_angle in ((True, False), (False, True), (False, False)):
        constants = {"CENTERED": centered, "BY_ANGLE": by_angle, "WIDTH": width, "QUERIES": ROTATED}
        assert shared(kernels.rotate_queries, arguments, constants, 3) <= LIMITS[gpu]


def test_the_other_kernels_of_the_search_compile():
    """Triton compiles them for an H200; registers for large samples are the limit of MAX_SAMPLE."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kway.rows.gpu import int8_kernels as kernels
    from kway.rows.gpu.int8_search import MAX_SAMPLE

    target = GPUTarget("cuda", 90, 32)

    def compiled(kernel, arguments, constants, warps):
        arguments = dict(pair.split(":") for pair in arguments.split())
        source = ASTSource(fn=kernel, signature=arguments | dict.fromkeys(constants, "constexpr"), constexprs=constants)
        return triton.compile(source, target=target, options={"num_warps": warps, "enable_fp_fusion": True}).asm["ptx"]

    pointers = "operands:*fp64 digits:*i8 fine_digits:*i8 constants:*fp32 norms:*fp64 steps:*fp64 counts:*i32 flags:*u8"
    numbers = "n_queries:i32 n_padded:i32 D:i32 finest:fp32 smallest:fp32 largest:fp32"
    for kind in ("fp32", "fp64"):
        constants = {"WIDTH": 128, "BLOCK": 128, "EPS": 1e-6}
        assert compiled(kernels.quantize_queries, f"queries:*{kind} {pointers} {numbers}", constants, 1)
    pointers = "products:*i32 constants:*fp32 lower:*fp32 n_padded:i32 n_tiles:i32"
    assert compiled(kernels.set_thresholds, pointers, {"K": 64, "SIZE": MAX_SAMPLE, "EPS": 1e-6}, 16)
    for kind in range(3):
        pointers = "rows:*fp32 queries:*fp32 counts:*i32 lists:*i32 distances:*fp64 D:i32"
        assert compiled(kernels.measure_candidates, pointers, {"KIND": kind, "CAPACITY": 4096}, 4)
        pointers = "counts:*i32 lists:*i32 distances:*fp64 best_ids:*i64 best_distances:*fp64 flags:*u8"
        pointers += " constants:*fp32 norms:*fp64 steps:*fp64 n_padded:i32"
        constants = {"EPS": 1e-6, "KIND": kind, "ROUND": kind > 0, "K": 11, "CAPACITY": 4096, "SIZE": 512}
        assert compiled(kernels.keep_nearest, pointers, constants, 1)

    from kway.rows.gpu import code_kernels

    pointers = "codes:*i32 query_words:*i32 queries:*fp32 lists:*i32 counts:*i32 agreeing_bits:*i32 products:*fp32"
    constants = {"CAPACITY": 8192, "BLOCK": 128}
    assert compiled(code_kernels.measure_codes, f"{pointers} n_rows:i32", constants, 4)
    constants = {"WORDS": 16, "PLANES": 2, "BLOCK": 64}
    assert compiled(code_kernels.unpack_planes, "words:*i32 out:*fp16 n_rows:i32", constants, 4)
    constants = {"ROWS": 128, "COLUMNS": 256, "DEPTH": 64}
    assert compiled(code_kernels.generate_codes, "codes:*i32 rotation:*bf16", constants, 8)


def test_the_drawn_shapes_are_right_on_the_cpu(tmp_path):
    pytest.importorskip("torch")
    from tests.gpu.device_shapes import main

    assert main(["--seconds", "2", "--device", "cpu", "--largest", "400", "--out", str(tmp_path / "out.json")]) == 0

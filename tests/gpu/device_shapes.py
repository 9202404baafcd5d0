"""Searches on a GPU against float64 on the same GPU, over drawn shapes.

Usage: python tests/gpu/device_shapes.py --seconds 300 --seed 0 --out shapes.json

Draws columns from 2 to 4,096, rows up to a million, k up to 2,048, one of three metrics, a store, and the kind, scale
and dtype of the rows, until the time is up. Writes one record per search: its shape, whether the answer is that of
brute force, and its error if it raised one. Ids may differ only between rows of equal distance. Codes of bits may lose
one neighbor in 20. The exit code is 1 if a search was wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

METRICS = ("euclidean", "cosine", "dot")
KINDS = ("gaussian", "clustered", "copies", "heavy tails", "far from the origin")
ROW_BYTES = 2 * 2**30  # bytes of the largest set of rows
STORES = (None, None, None, None, None, None, None, "int8", "bits1", "bits4")
SPARE = 32  # candidates beyond k, whose distances are computed again
LEAST_RECALL = 0.95  # of codes of bits; all other searches are exact
TOLERANCE = 1e-9  # relative difference of equal distances that were summed in another order


def draw_shape(rng: np.random.Generator) -> dict[str, Any]:
    """Draw a problem; sizes are log-uniform, and half of the columns are those of common embeddings."""
    usual = rng.random() < 0.5
    d = int(rng.choice([32, 64, 128, 256, 300, 384, 512, 768, 1024, 1536, 3072, 4096]) if usual else _log(rng, 2, 4096))
    dtype = str(rng.choice(["float32", "float32", "float64"]))
    most = min(1_000_000, ROW_BYTES // (d * np.dtype(dtype).itemsize))
    n = (
        int(_log(rng, 131_072, most))
        if most > 131_072 and rng.random() < 0.7
        else int(_log(rng, 10, min(most, 131_072)))
    )
    k = int(min(n - 1, rng.choice([1, 10, 64]) if rng.random() < 0.6 else _log(rng, 1, 2048)))
    return {
        "n": n, "d": d, "k": max(1, k), "queries": int(_log(rng, 1, 300)), "metric": str(rng.choice(METRICS)),
        "kind": str(rng.choice(KINDS)), "dtype": dtype, "seed": int(rng.integers(2**31)),
        "store": STORES[rng.integers(len(STORES))], "scale": float(10.0 ** rng.integers(-4, 5)),
    }  # fmt: skip


def _log(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def draw_rows(torch: Any, shape: dict[str, Any], device: str) -> tuple[Any, Any]:
    """Return rows (n, d) and queries (q, d): half of the queries are near a row, the others are drawn like rows."""
    source = torch.Generator(device=device).manual_seed(shape["seed"])
    n, d, q, kind = shape["n"], shape["d"], shape["queries"], shape["kind"]
    made = {"generator": source, "device": device}
    rows = torch.randn((n + q, d), **made)
    if kind == "clustered":
        rows = 0.2 * rows + torch.randn((50, d), **made)[torch.randint(0, 50, (n + q,), **made)]
    elif kind == "copies":
        rows = rows[torch.randint(0, max(2, n // 3), (n + q,), **made)]
    elif kind == "heavy tails":
        rows = rows * torch.rand((n + q, 1), **made).clamp(min=1e-3) ** -1.0
    elif kind == "far from the origin":
        rows = rows + 100.0
    rows = rows.to(getattr(torch, shape["dtype"])) * shape["scale"]
    rows, queries = rows[:n].contiguous(), rows[n:].clone()
    near = q // 2
    picked = torch.randint(0, n, (near,), **made)
    queries[:near] = rows[picked] + 0.05 * shape["scale"] * torch.randn((near, d), **made).to(rows.dtype)
    return rows, queries


def measure(torch: Any, rows: Any, queries: Any, metric: str) -> Any:
    """Return the distances (q, c) of queries (q, d) to rows (q, c, d), float64; written without the code under test."""
    if metric == "euclidean":
        return (rows - queries[:, None]).square().sum(2).sqrt()
    products = (rows * queries[:, None]).sum(2)
    if metric == "dot":
        return -products
    both = (rows.square().sum(2) * queries.square().sum(1)[:, None]).sqrt()
    return (1 - products / both.where(both > 0, 1.0)).clamp(0, 2).where(both > 0, 1.0)


def brute_force(torch: Any, rows: Any, queries: Any, k: int, metric: str) -> tuple[Any, Any]:
    """Return ids and distances (q, k): candidates by float64 products with every row, then distances of differences."""
    exact = queries.double()
    center = rows[:1000].double().mean(0) if metric == "euclidean" else 0.0
    keys = []
    for block in rows.split(max(1, 2**28 // rows.shape[1])):
        x = block.double() - center
        products = (exact - center) @ x.T
        if metric == "cosine":
            keys.append(-products / x.square().sum(1).sqrt().clamp(min=1e-300))
        else:
            keys.append((0.5 * x.square().sum(1) if metric == "euclidean" else 0.0) - products)
    ids = torch.cat(keys, 1).topk(min(len(rows), k + SPARE), 1, largest=False).indices.sort(1).values
    size = max(1, 2**27 // (ids.shape[1] * rows.shape[1]))
    parts = zip(exact.split(size), ids.split(size))
    away = torch.cat([measure(torch, rows[some].double(), asked, metric) for asked, some in parts])
    order = away.sort(dim=1, stable=True)
    return ids.gather(1, order.indices)[:, :k], order.values[:, :k]


def run_one(torch: Any, shape: dict[str, Any], device: str) -> dict[str, Any]:
    """Search one drawn problem, and compare the ids."""
    from kway.search import Bits, Flat, Int8

    record, store = dict(shape), {None: None, "int8": Int8(), "bits1": Bits(1), "bits4": Bits(4)}[shape["store"]]
    try:
        rows, queries = draw_rows(torch, shape, device)
        start = time.perf_counter()
        where = "cuda" if device.startswith("cuda") else "cpu"
        found = Flat(device=where, store=store).build(rows, shape["metric"]).nearest(queries, shape["k"])
        got = torch.as_tensor(found.ids, device=device)
        record["seconds"] = round(time.perf_counter() - start, 4)
        ids, distances = brute_force(torch, rows, queries, shape["k"], shape["metric"])
        if store is not None and not store.exact:
            away = measure(torch, rows[got[:, :64]].double(), queries.double(), shape["metric"])
            most = distances[:, : away.shape[1]].amax(1, keepdim=True)  # rows of equal distance are as good
            recall = float((away <= most + 1e-6 * most.abs()).float().mean())
            record |= {"recall": round(recall, 4), "right": recall >= LEAST_RECALL}
        else:
            record |= compare(torch, rows, queries, shape["metric"], got, ids, distances)
    except Exception as error:
        record |= {"right": False, "error": f"{type(error).__name__}: {str(error)[:300]}"}
    return record


def compare(torch: Any, rows: Any, queries: Any, metric: str, got: Any, ids: Any, distances: Any) -> dict[str, Any]:
    """Return how many ids differ, and whether each that differs has the distance of the row in its place.

    Answers are sorted by the distance in the dtype of the queries, so a tie in float32 may be in another order.
    """
    differ = int((got != ids).sum())
    own = measure(torch, rows[got[:, :64]].double(), queries.double(), metric)  # of the first 64 places
    least = 1.0 if metric == "cosine" else 1e-300  # the rounding of a cosine is that of its 1
    scale = distances.abs().amax(1, keepdim=True).clamp(min=least)
    worst = float(((own - distances[:, :64]).abs() / scale).max()) if differ else 0.0
    rest = got[:, 64:] != ids[:, 64:]
    for q, place in rest.nonzero()[:500].tolist():
        one = measure(torch, rows[got[q, 64 + place]][None, None].double(), queries[q][None].double(), metric)
        worst = max(worst, abs(float(one) - float(distances[q, 64 + place])) / float(scale[q]))
    allowed = TOLERANCE if queries.dtype == torch.float64 else float(torch.finfo(torch.float32).eps)
    unique = bool((got.sort(1).values.diff(dim=1) > 0).all())
    return {"differ": differ, "worst": worst, "right": worst <= allowed and unique}


def main(arguments: list[str] | None = None) -> int:
    """Draw and search until the time is up, and write the records."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit")
    parser.add_argument("--seed", type=int, default=0, help="seed of the drawn shapes")
    parser.add_argument("--device", default="cuda", help="torch device of the rows")
    parser.add_argument("--largest", type=int, default=0, help="rows at most; 0: no limit below a million")
    parser.add_argument("--out", default="device_shapes.json", help="JSON file of the results")
    chosen = parser.parse_args(arguments)
    import torch

    rng, records, end = np.random.default_rng(chosen.seed), [], time.monotonic() + chosen.seconds
    while time.monotonic() < end:
        shape = draw_shape(rng)
        if chosen.largest and shape["n"] > chosen.largest:
            shape |= {"n": chosen.largest, "k": min(shape["k"], chosen.largest - 1)}
        records.append(run_one(torch, shape, chosen.device))
        if chosen.device.startswith("cuda"):
            torch.cuda.empty_cache()  # several processes may share the GPU
        if not records[-1]["right"]:
            print(records[-1], flush=True)
    wrong = [record for record in records if not record["right"]]
    name = torch.cuda.get_device_name(chosen.device) if chosen.device.startswith("cuda") else "cpu"
    result = {"device": name, "torch": torch.__version__, "seed": chosen.seed, "searches": len(records)}
    result |= {"wrong": len(wrong), "records": records}
    Path(chosen.out).write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(records)} searches, {len(wrong)} wrong: {chosen.out}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

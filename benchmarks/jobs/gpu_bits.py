"""In addition to G3: nearest rows by `Bits(1)` of 512 columns, with a filter of signs first or all codes multiplied.

Rows come from a counter and are never stored; full rows, by which those in doubt are measured, are made again from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from typing import Any

from ..race import Row

DEVIATIONS = 4.0  # normal, that filter and error bars allow for
COSINE = 0.6  # of a query to its own row


def coded_rows(n: int, rounds: int, device: str = "cuda") -> Iterator[Row]:
    """One query, 64 and 1,024 among n rows."""
    import torch

    from kway.rows.gpu.generated_rows import CounterRows

    made = CounterRows(device)
    plain, listed = _searches(made, n)
    for q, job in ((1, "one query"), (64, "64 queries"), (1024, "1,024 queries")):
        truth = torch.randint(0, n, (q,), device=device)
        queries = made.queries(truth, COSINE, seed=q)
        ways = {"kway": listed, "all codes multiplied": plain}
        times, ids = {}, {}
        for name, codes in ways.items():
            times[name], ids[name] = _asked(made, codes, queries, rounds if codes is listed else 1)
        same = float((ids["kway"] == ids["all codes multiplied"]).float().mean())
        said = f"same row for {same:.2%}, the correct one for {float((ids['kway'] == truth).float().mean()):.2%}"
        yield Row(
            "gpu_search", f"nearest by Bits(1), {job}", f"{n:,} rows x 512 columns", "all codes multiplied",
            *(median(each) for each in times.values()), None, said, same == 1.0, times,
        )  # fmt: skip


def _searches(made: Any, n: int) -> tuple[Any, Any]:
    """Codes of n rows of length one as `Flat(store=Bits(1))` keeps them, without the filter and with it."""
    import torch

    from kway.rows.gpu.bit_codes import BitCodes
    from kway.rows.gpu.sign_codes import SignFilter

    signs, where = made.codes(n), made.device.name
    some = _rows(made, torch.randint(0, n, (4096,), device=where))
    along = some.abs().sum(1)  # <x, y>
    wide = float((512 - along.square()).clamp(min=0).sqrt().max()) / 511**0.5
    factor = torch.full((n,), 1 / float(along.mean()), device=where)
    plain = BitCodes(made.device, 1, signs.words[:n], factor, None, DEVIATIONS * wide, 0.0)
    pays = SignFilter.is_worthwhile(made.device, 1, 512, n)
    return plain, replace(plain, filter=SignFilter(signs, DEVIATIONS, 1.0, 1.0) if pays else None)


def _rows(made: Any, ids: Any) -> Any:
    rows = made.rows(ids) @ made.turn.float()
    return rows / rows.square().sum(1, keepdim=True).sqrt()


def _asked(made: Any, codes: Any, queries: Any, rounds: int) -> tuple[list[float], Any]:
    """Seconds of each round after one to warm up, and the nearest (q,)."""
    import torch

    from kway.rows.gpu.bit_codes import CodeQueries

    norms = queries.double().square().sum(1).sqrt()
    asked = CodeQueries(queries, norms, torch.ones_like(norms))
    measure: Callable[[Any, Any], Any] = lambda which, ids: torch.cat(  # noqa: E731
        [
            1 - (_rows(made, some.reshape(-1)).view(*some.shape, 512) @ own[:, :, None])[:, :, 0].double()
            for some, own in zip(ids.split(64), queries[which].split(64))
        ]
    )
    times = []
    for _ in range(rounds + 1):
        made.device.wait()
        begun = time.perf_counter()
        found = codes.nearest(asked, 1, measure)
        made.device.wait()
        times.append(time.perf_counter() - begun)
    return times[1:], found.ids[:, 0]

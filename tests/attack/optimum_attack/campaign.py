"""Problems judged and timed in many processes.

Each process keeps to one core, so that times are those of one thread. A time over SLOW is taken again, the best of
three: fits of milliseconds are at the mercy of whatever else runs.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from multiprocessing import TimeoutError, get_context

from optimum_attack.larger import draw_larger, judge_larger
from optimum_attack.many_classes import compare_times, draw_many
from optimum_attack.problems import Problem, draw
from optimum_attack.verdicts import fitted, judge, time_ratio

SLOW = 3.0  # times scikit-learn's best
MOST_RACED = 1e8  # rows x columns x classes of a problem that scikit-learn fits as well
SHORT = 0.02  # seconds: below, the ratio is one of fixed costs


def alone(cores: list[int], numbers: object) -> None:
    """This process on one core of its own."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cores[numbers.get() % len(cores)]})  # type: ignore[attr-defined]


def one(seed: int, larger: bool = False) -> dict:
    """A problem of a seed, judged and timed; larger ones are not timed."""
    found = judge_larger(draw_larger(seed)) if larger else judge(draw(seed))
    ratio = float("nan") if larger else time_ratio(found)
    if ratio > SLOW:
        ratio = min(ratio, time_ratio(found), time_ratio(found))
    return {
        "seed": seed, "kind": "/".join(found.problem.kind), "missed": found.silent_miss, "warned": found.warned,
        "above": not found.excess <= 1, "ratio": ratio, "seconds": found.seconds, "said": str(found),
    }  # fmt: skip


def one_of_many_classes(seed: int) -> dict:
    """Fit the problem of many classes of a seed with the defaults."""
    problem = draw_many(seed)
    _, warned, seconds = fitted(problem)
    return _sizes(problem) | {"seconds": round(seconds, 2), "warned": warned}


def one_race(seed: int) -> dict:
    """Fit a problem of many classes with kway and with scikit-learn; times are CPU seconds."""
    problem = draw_many(seed, MOST_RACED)
    return _sizes(problem) | compare_times(problem)._asdict()


def _sizes(problem: Problem) -> dict:
    (n, d), K = problem.X.shape, int(problem.y.max()) + 1
    return {"seed": problem.seed, "rows": n, "columns": d, "classes": K, "alpha": problem.options["alpha"]}


def run(
    judge_one: Callable[[int], dict], seeds: Iterable[int], processes: int, seconds: float,
    tell: Callable[[str], object],
) -> list[dict]:  # fmt: skip
    """Return what `judge_one` returns for these seeds, or for as many as the seconds allow."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    context = get_context("spawn")  # a fork would take BLAS's threads along
    numbers = context.Queue()
    for number in range(processes):
        numbers.put(number)
    end, found = time.monotonic() + seconds, []
    with context.Pool(processes, alone, (cores, numbers)) as pool:  # is ended, whatever it is at, when this returns
        verdicts = pool.imap_unordered(judge_one, seeds)
        try:
            while (left := end - time.monotonic()) > 0:
                found.append(verdicts.next(min(left, 1e6)))
                if len(found) % 200 == 0:
                    tell(f"{len(found)} done, {sum(v.get('missed', False) for v in found)} missed")
        except (StopIteration, TimeoutError):
            pass
    return found


def told(found: list[dict], asked: int) -> None:
    """Counts and what they are made of."""
    tried, warned = Counter(v["kind"] for v in found), Counter(v["kind"] for v in found if v["warned"])
    for kind in sorted(tried):
        print(f"  {kind}: {tried[kind]} tried, {warned[kind]} warned")
    for v in sorted(found, key=lambda v: v["seed"]):
        if v["warned"] or v["missed"]:
            print("  " + v["said"])
    timed = [v for v in found if v["ratio"] >= 0]
    slow = sorted((v for v in timed if v["ratio"] > SLOW), key=lambda v: -v["ratio"])
    for v in slow:
        print(f"  {v['ratio']:.1f}x scikit-learn's time: {v['said']}")
    missed = [v["seed"] for v in found if v["missed"]]
    print(
        f"{len(found):,} of {asked:,} problems: {sum(not v['above'] for v in found):,} within tol, "
        f"{sum(v['warned'] for v in found):,} warned ({sum(v['warned'] and not v['above'] for v in found):,} of them "
        f"within), {len(missed)} silently above {missed}; against scikit-learn {len(timed)} timed, {len(slow)} over "
        f"{SLOW:g}x, {sum(v['seconds'] > SHORT for v in slow)} of them longer than {SHORT:g} s"
    )

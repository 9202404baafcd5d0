"""The long campaign: counts the kinds of problems, every silent miss, and where scikit-learn is faster.

    python -m optimum_attack 2000 --processes 14 --seconds 300
    python -m optimum_attack 300 --larger
    python -m optimum_attack 500 --many --processes 14 --out many_classes.json

Exits with 1 if a fit was silently above tol, or, with --many, if more than 1% of the fits warned.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

from optimum_attack.campaign import one, one_of_many_classes, one_race, run, told


def main() -> int:
    """Run the campaign of the command line."""
    parser = argparse.ArgumentParser(prog="optimum_attack")
    parser.add_argument("n", type=int, help="problems")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this long")
    parser.add_argument("--larger", action="store_true", help="beyond the oracle: long runs stand for the optimum")
    parser.add_argument("--many", action="store_true", help="100 to 2,000 classes; counts warnings")
    parser.add_argument("--races", type=int, default=40, help="problems of --many that scikit-learn fits as well")
    parser.add_argument("--out", type=Path, help="JSON file for the results of --many")
    given = parser.parse_args()
    seeds, tell = range(given.first, given.first + given.n), partial(print, flush=True)
    if given.many:
        fits = run(one_of_many_classes, seeds, given.processes, given.seconds, tell)
        _tell_many(fits, [], given.out)  # written before the races, so that an interruption does not lose the fits
        races = run(one_race, seeds[: given.races], given.processes, given.seconds, tell)
        return _tell_many(fits, races, given.out)
    found = run(partial(one, larger=given.larger), seeds, given.processes, given.seconds, tell)
    told(found, given.n)
    return int(any(v["missed"] for v in found))


def _tell_many(fits: list[dict], races: list[dict], out: Path | None) -> int:
    """Print the counts, and write all results to a file."""
    warned = [fit["seed"] for fit in fits if fit["warned"]]
    # a fit counts as slow only if scikit-learn reached an objective as low
    slow = [
        race["seed"]
        for race in races
        if race["ours"] > 3 * race["theirs"] and race["value"] >= race["their_value"] * (1 - 1e-3)
    ]
    print(f"{len(fits)} fits of many classes, {len(warned)} warned {warned}")
    print(f"{len(races)} timed next to scikit-learn, {len(slow)} took more than 3 times as long {slow}")
    if out:
        totals = {"fits": len(fits), "warned": len(warned), "races": len(races), "slow": len(slow)}
        parts = {"fits": fits, "races": races}
        columns = {name: list(part[0]) for name, part in parts.items() if part}
        lists = {name: [list(row.values()) for row in sorted(part, key=_seed)] for name, part in parts.items()}
        lines = [f'"{name}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]" for name, rows in lists.items()]
        head = f'"totals": {json.dumps(totals)},\n"columns": {json.dumps(columns)}'
        out.write_text("{" + ",\n".join([head, *lines]) + "}\n")
    return int(len(warned) > len(fits) / 100 or bool(slow))


def _seed(row: dict) -> int:
    return int(row["seed"])


if __name__ == "__main__":
    sys.exit(main())

"""Mutation testing: change one operator or number of a module at a time, and see whether its tests notice.

    python tools/mutate.py votes --most 40      survivors, and a line of counts; without a name, every subject
    python tools/mutate.py losses --part 2/14   every 14th of them, from the second on: one of 14 processes
    make mutate MOST=40

A mutant is a function of the module with one change, or one of its numbers. A forked child, in which everything is
imported already, puts the changed code into the function itself, so that whoever holds it is met; no file is written.
Kernels run uncompiled (NUMBA_DISABLE_JIT=1) where one of them is changed, since numba would take the compiled original
from its cache. A mutant that a test fails on, or that makes the tests hang, is killed. A survivor is a missing test, or
equal to the original: docs/trust.md lists what is known to be equal.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import importlib
import inspect
import math
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
PATIENCE = 4  # times the processor time that the original takes, until a mutant counts as hanging
WAITS = 30  # times as long by the clock, for one that waits in vain: a busy machine is no hang


class Subject(NamedTuple):
    """Modules that are changed, and the tests that ought to notice."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    compiled: bool = False  # whether its tests run with compiled kernels: none of them is changed


SUBJECTS = {
    "links": Subject(
        ("kway.probabilities", "kway.linear.losses"),
        ("tests/contracts/test_losses.py",),
    ),
    "losses": Subject(("kway.kernels.linear.losses",), ("tests/contracts/test_losses.py",)),
    "votes": Subject(("kway.kernels.votes", "kway.neighbors.votes"), ("tests/contracts/test_votes.py",)),
    "topk": Subject(("kway.kernels.topk",), ("tests/kernels/test_topk.py",)),
    "columns": Subject(("kway.base.class_rows",), ("tests/kernels/test_topk.py", "tests/contracts/test_answers.py")),
    "conformal": Subject(
        ("kway.confidence.conformal",),
        ("tests/confidence/test_nonconformity.py", "tests/confidence/test_conformal.py"),
        compiled=True,
    ),
    "agreement": Subject(
        ("kway.neighbors.agreement",),
        (
            "tests/neighbors/test_agreement_rules.py",
            "tests/neighbors/test_agreement.py::test_the_bound_is_clopper_and_pearsons",
        ),
        compiled=True,
    ),
}
SWAPS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.And: (ast.Or,), ast.Or: (ast.And,), ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,), ast.USub: (ast.UAdd,),
}  # fmt: skip


class Mutant(NamedTuple):
    """A changed module."""

    module: str
    line: int
    change: str
    tree: ast.Module


def mutants(module: str) -> Iterator[Mutant]:
    """Every single change of a module."""
    tree = ast.parse((ROOT / "src" / Path(*module.split("."))).with_suffix(".py").read_text())
    inside = _changeable(tree)
    places = [(at, node) for at, node in enumerate(ast.walk(tree)) if id(node) in inside]
    for at, node in places:
        for number in range(len(_changes(node))):
            changed = copy.deepcopy(tree)
            twin = list(ast.walk(changed))[at]
            before = ast.unparse(twin)
            _changes(twin)[number](twin)
            yield Mutant(module, node.lineno, f"{before}  ->  {ast.unparse(twin)}", ast.fix_missing_locations(changed))


def _changeable(tree: ast.Module) -> set[int]:
    """Nodes of the bodies of functions, and of the module's own numbers."""
    numbers = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    ]
    bodies = [part for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for part in node.body]
    return {id(node) for part in (*numbers, *bodies) for node in ast.walk(part)}


def _changes(node: ast.AST) -> list[Any]:
    """Functions that change a node in place."""
    if isinstance(node, ast.Compare):
        return [lambda n, to=to: n.ops.__setitem__(0, to()) for to in SWAPS.get(type(node.ops[0]), ())]
    if isinstance(node, ast.BoolOp | ast.BinOp | ast.UnaryOp | ast.AugAssign):
        return [lambda n, to=to: setattr(n, "op", to()) for to in SWAPS.get(type(node.op), ())]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return [lambda n: setattr(n, "value", not n.value)]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return [lambda n: setattr(n, "value", n.value + 1 if n.value + 1 != n.value else 2 * n.value)]
    return []


class Ended(NamedTuple):
    """How a child ended: whether all tests passed, and the seconds of processor time that it took."""

    passed: bool
    seconds: float


def tried(mutant: Mutant | None, tests: tuple[str, ...], patience: float) -> Ended:
    """Run the tests, in so many seconds of processor time, in a child that imports the mutant (None: the original)."""
    child = os.fork()
    if child == 0:
        signal.setitimer(signal.ITIMER_PROF, patience)
        signal.alarm(math.ceil(WAITS * patience))
        if mutant is not None:
            _put_in(mutant)
        os._exit(_quietly("-x", *tests))
    _, status, used = os.wait4(child, 0)
    return Ended(status == 0, used.ru_utime + used.ru_stime)


def _quietly(*arguments: str) -> int:
    """pytest's exit status; nothing is printed."""
    import pytest

    printed = [os.dup(1), os.dup(2)]
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    status = int(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:unraisableexception", *arguments]))
    os.dup2(printed[0], 1)
    os.dup2(printed[1], 2)
    return status


def _put_in(mutant: Mutant) -> None:
    """The module's functions get the mutant's code, and the module its numbers."""
    module = importlib.import_module(mutant.module)
    changed = {"__name__": mutant.module, "__file__": module.__file__}
    exec(compile(mutant.tree, str(module.__file__), "exec"), changed)
    for name, new in changed.items():
        old = getattr(module, name)
        if isinstance(new, int | float):
            setattr(module, name, new)
        elif getattr(new, "__module__", None) == mutant.module:
            for target, source in _functions(old, new):
                target.__code__ = source.__code__


def _functions(old: Any, new: Any) -> Iterator[tuple[FunctionType, FunctionType]]:
    """Functions of the one and the same of the other: itself, what a kernel compiles, or the methods of a class."""
    old, new = inspect.unwrap(old), inspect.unwrap(new)
    if isinstance(old, FunctionType):
        yield old, new
    elif isinstance(old, type):
        for name, part in vars(old).items():
            twin = vars(new)[name]
            plain = [getattr(part, "fget", None) or getattr(part, "__func__", part)]
            plain.append(getattr(twin, "fget", None) or getattr(twin, "__func__", twin))
            if all(isinstance(one, FunctionType) for one in plain) and plain[0].__module__ == plain[1].__module__:
                yield plain[0], plain[1]


class Part(NamedTuple):
    """The number-th of `of` parts of the mutants, from 1."""

    number: int
    of: int

    @staticmethod
    def read(text: str) -> Part:
        """From "2/14"."""
        return Part(*map(int, text.split("/")))


def attack(name: str, most: int, seed: int, part: Part) -> bool:
    """Try at most so many mutants of a subject, drawn at random, and print the survivors; whether there were none."""
    subject = SUBJECTS[name]
    os.environ["NUMBA_DISABLE_JIT"] = str(int(not subject.compiled))
    for module in subject.modules:
        importlib.import_module(module)
    _quietly("--collect-only", *subject.tests)  # imports all that the tests do, once, before the forks
    gc.freeze()  # what is there already stays out of the children's collections
    original = tried(None, subject.tests, 3600)
    if not original.passed:
        raise SystemExit(f"{name}: the tests fail on the original; run them with NUMBA_DISABLE_JIT=1")
    patience = PATIENCE * original.seconds + 2
    every = [mutant for module in subject.modules for mutant in mutants(module)]
    drawn = np.random.default_rng(seed).permutation(len(every))[:most]
    chosen = sorted(drawn)[part.number - 1 :: part.of]
    ends: Counter[str] = Counter()
    for at in chosen:
        alive = tried(every[at], subject.tests, patience).passed
        ends["survived" if alive else "killed"] += 1
        if alive:
            print(f"  {every[at].module}:{every[at].line}: {every[at].change}", flush=True)
    print(
        f"{name}: {len(chosen)} of {len(every)} mutants, {ends['killed']} killed, {ends['survived']} survived",
        flush=True,
    )
    return not ends["survived"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="mutate")
    parser.add_argument("subjects", nargs="*", default=list(SUBJECTS), help=", ".join(SUBJECTS))
    parser.add_argument("--most", type=int, default=40, help="mutants of each subject")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", type=Part.read, default=Part(1, 1), help="2/14: every 14th, from the second on")
    given = parser.parse_args()
    os.chdir(ROOT)
    if len(given.subjects) == 1:
        sys.exit(not attack(given.subjects[0], given.most, given.seed, given.part))
    rest = ["--most", str(given.most), "--seed", str(given.seed), "--part", "{}/{}".format(*given.part)]
    each = [subprocess.run([sys.executable, __file__, name, *rest]).returncode for name in given.subjects]
    sys.exit(any(each))  # a process each: kernels are compiled, or not, from the first import on

"""Which changes of a module its tests do not notice: mutation testing of the pure cores, run by hand.

    nice .venv/bin/python -m tests.mutation services/had/core/election.py tests/unit/had/test_election.py

One small change at a time is made to the functions of the module (`mutants`), and the tests are run until one fails.
A change that none of them notices is a survivor: a test is missing, or the change makes no difference. docs/testing.md
tells which were left, and why. --line N runs those of one line only.

Tests and product are read once. Each mutant is a fork in which the functions have the changed code instead of theirs
(`put_in_place`), so one costs what its tests cost: cosmic-ray and mutmut begin a pytest for each, which here takes
seconds to read the product, and mutmut wants a copy of the whole tree. What stands outside of functions (constants,
defaults) is not changed.
"""

import argparse
import ast
import copy
import gc
import importlib
import json
import os
import resource
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: A mutant that computes this much longer than the tests do has an endless loop.
FACTOR, MORE_S = 3.0, 5.0

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    line: int
    was: str
    now: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"{self.line}: {self.was}  ->  {self.now}"


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    match node:
        case ast.Compare(ops=operators):
            for place, operator in enumerate(operators):
                other = copy.deepcopy(node)
                other.ops[place] = _COMPARISONS[type(operator)]()
                yield other
        case ast.BoolOp(op=operator):
            other = copy.deepcopy(node)
            other.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield other
        case ast.UnaryOp(op=ast.Not(), operand=operand) | ast.UnaryOp(op=ast.USub(), operand=operand):
            yield operand
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _OPERATORS:
            other = copy.deepcopy(node)
            other.op = _OPERATORS[type(operator)]()
            yield other
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            other = copy.deepcopy(node)
            other.func.id = _CALLS[name]
            yield other
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if isinstance(
            test, ast.Name | ast.Attribute | ast.Call
        ):
            other = copy.deepcopy(node)
            other.test = ast.UnaryOp(ast.Not(), test)
            yield other
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()


def _places(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Every place of a node within a function: the parent, the field, and which of a list. What only says something
    to readers and users (annotations, docstrings, texts of errors) is none."""

    def inside(parent: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
        for field, value in ast.iter_fields(parent):
            if field in ("annotation", "returns", "decorator_list", "defaults", "kw_defaults"):
                continue
            for place, node in enumerate(value) if isinstance(value, list) else ((None, value),):
                if not isinstance(node, ast.AST) or isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert):
                    continue
                yield parent, field, place
                yield from inside(node)

    def functions(node: ast.AST) -> Iterator[ast.AST]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield child
            elif isinstance(child, ast.ClassDef):
                yield from functions(child)

    for function in functions(tree):
        yield from inside(function)


def _at(place: tuple[ast.AST, str, int | None]) -> ast.AST:
    parent, field, number = place
    return getattr(parent, field) if number is None else getattr(parent, field)[number]


def mutants(source: str) -> Iterator[Mutant]:
    count = len(list(_places(ast.parse(source))))
    for index in range(count):
        original = list(_places(ast.parse(source)))[index]
        for which, _ in enumerate(list(_changes(_at(original)))):
            tree = ast.parse(source)
            parent, field, number = place = list(_places(tree))[index]
            node = _at(place)
            change = list(_changes(node))[which]
            if isinstance(node, ast.stmt) and isinstance(change, ast.stmt):
                ast.copy_location(change, node)
            shown = [ast.unparse(part).partition("\n")[0] for part in (node, change)]
            if number is None:
                setattr(parent, field, change)
            else:
                getattr(parent, field)[number] = change
            yield Mutant(node.lineno, *shown, ast.fix_missing_locations(tree))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


def put_in_place(path: Path, tree: ast.Module) -> None:
    """Give every function of the module the code that it has in the tree."""
    changed = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compile(tree, str(path), "exec"))}
    gc.unfreeze()  # what tests/conftest.py froze is among no objects
    for function in [found for found in gc.get_objects() if isinstance(found, types.FunctionType)]:
        code = function.__code__
        if code.co_filename == str(path) and (new := changed.get((code.co_qualname, code.co_firstlineno))):
            function.__code__ = new


class Loop:
    """Runs the tests that pytest has collected, once for each mutant."""

    def __init__(self, path: Path, jobs: int, lines: Sequence[int]) -> None:
        self.path, self.jobs, self.lines = path, jobs, lines
        self.failed = False
        self.survivors: list[Mutant] = []
        self.killed = self.endless = 0
        self._took: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed
        self._took[report.nodeid] = self._took.get(report.nodeid, 0.0) + report.duration

    def _run(self, items: list[pytest.Item]) -> bool:
        """Whether they all pass."""
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return False
        return True

    def _forked(self, work: Callable[[], bool], limit_s: float | None) -> int:
        pid = os.fork()
        if pid == 0:
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            if limit_s is not None:
                resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s) + 1))
            status = 1
            try:
                status = 0 if work() else 1
            finally:
                os._exit(status)
        return pid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = session.items
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        with tempfile.TemporaryFile("w+") as told:

            def first() -> bool:
                passed = self._run(items)
                json.dump(self._took, told)
                told.flush()
                return passed

            _, status = os.waitpid(self._forked(first, None), 0)
            if status:
                raise pytest.UsageError("the tests fail without a change: run them with pytest")
            told.seek(0)
            took = json.load(told)
        items.sort(key=lambda item: took[item.nodeid])  # most changes are noticed at once
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        _say(f"{self.path}: {len(items)} tests take {used_s:.1f} s, {time.monotonic() - began:.1f} by the clock")
        running: dict[int, Mutant] = {}

        def one_ends() -> None:
            pid, status = os.waitpid(-1, 0)
            mutant = running.pop(pid)
            if status == 0:
                self.survivors.append(mutant)
                _say(f"{self.path}:{mutant}")
            elif os.WIFSIGNALED(status):
                self.endless += 1
            else:
                self.killed += 1

        for mutant in mutants(self.path.read_text()):
            if self.lines and mutant.line not in self.lines:
                continue
            while len(running) >= self.jobs:
                one_ends()

            def work(tree: ast.Module = mutant.tree) -> bool:
                put_in_place(self.path, tree)
                return self._run(items)

            running[self._forked(work, used_s * FACTOR + MORE_S)] = mutant
        while running:
            one_ends()
        total = self.killed + self.endless + len(self.survivors)
        _say(f"{self.path}: {total} mutants, {self.killed} noticed, {self.endless} endless, {len(self.survivors)} left")
        return True


def _say(text: str) -> None:
    print(text, file=sys.__stderr__, flush=True)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.partition("\n")[0])
    parser.add_argument("module", type=Path, help="file of the module that is changed")
    parser.add_argument("tests", nargs="+", help="what pytest is to run")
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="only tests that match it, as pytest's -k")
    parser.add_argument("-j", type=int, default=1, help="so many mutants at once")
    parser.add_argument("--line", type=int, action="append", default=[], help="only changes of this line")
    options = parser.parse_args(argv)
    path = options.module.resolve()
    importlib.import_module(str(path.relative_to(ROOT)).removesuffix(".py").replace("/", "."))
    loop = Loop(path, options.j, options.line)
    gc.collect()
    words = ["-x", "-n", "0", "-p", "no:cacheprovider", "-p", "no:terminal", "-k", options.k]
    words += ["--hypothesis-profile", "mutation"]
    status = pytest.main([*words, *options.tests], plugins=[loop])
    return int(status) if not loop.survivors else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Measures the house: how many rooms it has, and how they hang together.

    python -m tests.infrastructure.house                                 # this checkout
    python -m tests.infrastructure.house --rev f9f064e                   # that revision, from git
    python -m tests.infrastructure.house --write docs/architecture.md    # before and after, and the pictures

What is counted, all of it by AST (tests/infrastructure/imports.py):

- modules: files of services/ with anything but a docstring in them; lines as `wc -l` counts them;
- one importer: modules of services/ that exactly one module of the product imports, `__main__` and `daemon` apart,
  which are programs;
- circles: strongly connected components of the product's imports that happen at run time, those inside of functions
  too; *with typing*: when imports under `if TYPE_CHECKING:` count as well, which a reader has to keep in mind;
- rooms in circles: the same of a daemon's rooms, which are its folders and the modules that lie beside `daemon.py`;
- Protocols: those of the product that one class only has all the members of, tests' doubles included; callbacks and
  those that libraries' objects have are apart;
- pass-through: methods of services/ whose only statement hands the same arguments to a method of one of the object's
  attributes;
- longest chain: modules on the longest chain of run-time imports, a circle counted as one;
- long functions: more than 60 lines, from `def` to the last; long modules: more than 800.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.infrastructure.imports import PACKAGES, ROOT, House, Module, circles, longest_chain, merged

BEFORE = "f9f064e"
LONG_FUNCTION, LONG_MODULE = 60, 800


@dataclass(frozen=True)
class Measure:
    """One number of the table, and what it is made of."""

    name: str
    value: str
    items: tuple[str, ...] = ()


def room_of(name: str) -> str:
    """services.startd.exec.docker.launcher -> services.startd.exec; services.startd.timers stays."""
    return ".".join(name.split(".")[:3])


def measured(house: House, doubles: House | None = None) -> list[Measure]:
    """All numbers of a checkout. doubles: its tests, whose classes count as implementations of Protocols."""
    services = [one for one in house.modules.values() if one.daemon and not one.is_empty]
    found = [Measure("modules in services/ (not empty)", str(len(services)))]
    for daemon in sorted({one.daemon for one in services}):
        found.append(Measure(f"- {daemon}", str(sum(one.daemon == daemon for one in services))))
    found.append(Measure("modules in engine/", str(sum(_is_of(one, "engine") for one in house.modules.values()))))
    found.append(Measure("median lines of a module in services/", f"{statistics.median(m.lines for m in services):g}"))
    found.append(Measure("lines of services/ and engine/", f"{_lines(house, 'services') + _lines(house, 'engine'):,}"))
    product = sum(_lines(house, package) for package in PACKAGES)
    found.append(Measure("lines of services/, engine/, shared/ and roost/", f"{product:,}"))
    found.append(_list("modules with one importer", single_importers(house, services)))
    whole = {one.name: one.runtime | one.typing for one in services}
    found.append(_circles("circles of modules at run time", house.runtime_graph()))
    found.append(_circles("- of these in services/", {one.name: one.runtime for one in services}))
    found.append(_circles("circles of modules, with typing", house.whole_graph()))
    found.append(_circles("- of these in services/, with typing", whole))
    found.append(_circles("rooms of daemons in circles, with typing", merged(whole, room_of), count_members=True))
    typing = [f"{one.name} -> {target}" for one in house.modules.values() for target in sorted(one.typing)]
    found.append(_list("imports under TYPE_CHECKING", typing))
    found.append(_list("Protocols with one implementation", single_protocols(house, doubles)))
    found.append(_list("pass-through methods", [text for one in services for text in pass_through(one)]))
    chain = longest_chain(house.runtime_graph())
    found.append(Measure("longest import chain", str(len(chain)), (" -> ".join(chain),)))
    found.append(
        _list(f"functions over {LONG_FUNCTION} lines", [text for one in services for text in long_functions(one)])
    )
    long = [f"{one.name} ({one.lines})" for one in house.modules.values() if one.lines > LONG_MODULE]
    found.append(_list(f"modules over {LONG_MODULE} lines", long))
    return found


def _is_of(module: Module, package: str) -> bool:
    return module.name.split(".")[0] == package and not module.is_empty


def _lines(house: House, package: str) -> int:
    return sum(one.lines for one in house.modules.values() if _is_of(one, package))


def _list(name: str, items: list[str]) -> Measure:
    return Measure(name, str(len(items)), tuple(sorted(items)))


def _circles(name: str, graph: dict[str, set[str]], *, count_members: bool = False) -> Measure:
    found = circles(graph)
    members = sum(map(len, found))
    value = str(members) if count_members else f"{len(found)} ({members} modules)" if found else "0"
    return Measure(name, value, tuple(", ".join(sorted(one)) for one in found))


def single_importers(house: House, services: list[Module]) -> list[str]:
    programs = ("__main__", "daemon")
    return [
        f"{one.name} <- {next(iter(house.importers[one.name]))}"
        for one in services
        if len(house.importers[one.name]) == 1 and one.name.rpartition(".")[2] not in programs
    ]


def long_functions(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > LONG_FUNCTION:
                yield f"{module.name}.{node.name} ({lines})"


def pass_through(module: Module) -> Iterator[str]:
    """Methods that only forward."""
    for kind in module.classes:
        for node in kind.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _forwards(node):
                yield f"{module.name}.{kind.name}.{node.name}"


def _forwards(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    body = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr) or node.decorator_list:
        return False
    call = body[0].value
    call = call.value if isinstance(call, ast.Await) else call
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    owner = call.func.value
    if not isinstance(owner, ast.Attribute):  # self.other.method: not self.method, not function(...)
        return False
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    if not isinstance(owner, ast.Name) or owner.id != "self":
        return False
    wanted = [one.arg for one in (*node.args.posonlyargs, *node.args.args)][1:]
    wanted += [one.arg for one in node.args.kwonlyargs]
    given = [ast.unparse(one) for one in call.args] + [ast.unparse(one.value) for one in call.keywords]
    wanted += [f"*{node.args.vararg.arg}"] if node.args.vararg else []
    wanted += [node.args.kwarg.arg] if node.args.kwarg else []
    return sorted(given) == sorted(wanted)


def members_of(node: ast.ClassDef) -> set[str]:
    """Names of what a class has: methods, fields, attributes set in methods. Private ones apart."""
    found: set[str] = set()
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(child.name)
            for inner in ast.walk(child):
                if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                    found.add(inner.attr)
        elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            found.add(child.target.id)
        elif isinstance(child, ast.Assign):
            found |= {one.id for one in child.targets if isinstance(one, ast.Name)}
    return {name for name in found if not name.startswith("_") or name in ("__call__", "__enter__", "__iter__")}


def _base(node: ast.expr) -> str:
    node = node.value if isinstance(node, ast.Subscript) else node
    return ast.unparse(node).rpartition(".")[2]


def single_protocols(house: House, doubles: House | None = None) -> list[str]:
    """Protocols, each with the class that has all of its members, where that is one only."""
    classes: list[tuple[str, ast.ClassDef]] = []
    for place in filter(None, (house, doubles)):
        for module in place.modules.values():
            classes += [(module.name, node) for node in module.classes]
    by_name: dict[str, ast.ClassDef] = {node.name: node for _, node in classes}
    own = {node: members_of(node) for _, node in classes}

    def everything(node: ast.ClassDef, seen: frozenset[str] = frozenset()) -> set[str]:
        found = set(own[node])
        for base in map(_base, node.bases):
            if base in by_name and base not in seen and by_name[base] is not node:
                found |= everything(by_name[base], seen | {node.name})
        return found

    def is_protocol(node: ast.ClassDef) -> bool:
        return "Protocol" in map(_base, node.bases)

    having = [(name, node, everything(node)) for name, node in classes if not is_protocol(node)]
    found = []
    for name, node in classes:
        wanted = everything(node) if is_protocol(node) else set()
        if not wanted or "__call__" in wanted or name.startswith("tests"):
            continue
        able = sorted({f"{where}.{one.name}" for where, one, members in having if wanted <= members})
        if len(able) == 1:
            found.append(f"{name}.{node.name}: {able[0]}")
    return found


# Revisions


def of_tree(root: Path) -> list[Measure]:
    return measured(House(root), House(root, ["tests"]))


def of_revision(revision: str) -> list[Measure]:
    """The same of a revision, by `git archive`. Raises CalledProcessError where git does not have it."""
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive)) as file:
        file.extractall(folder, filter="data")
        return of_tree(Path(folder))


def table(columns: dict[str, list[Measure]]) -> str:
    """Markdown, one row a number, in the order in which the last column has them."""
    *_, last = columns.values()
    names = [one.name for one in last]
    values = {title: {one.name: one.value for one in measures} for title, measures in columns.items()}
    lines = [f"| | {' | '.join(columns)} |", "| --- |" + " ---: |" * len(columns)]
    lines += [f"| {name} | {' | '.join(values[title].get(name, '-') for title in columns)} |" for name in names]
    return "\n".join(lines) + "\n"


def between(text: str, what: str, made: str) -> str:
    """The page with what stands between the marks of `what` made anew."""
    begin, end = f"<!-- {what}: begin -->\n", f"<!-- {what}: end -->\n"
    head, _, rest = text.partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise ValueError(f"there are no marks {begin.strip()} and {end.strip()}")
    return f"{head}{begin}\n{made}\n{end}{tail}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rev", help="a revision of git in place of this checkout")
    parser.add_argument("--write", type=Path, help="put before, after and the pictures into this page")
    parser.add_argument("--verbose", action="store_true", help="also what each number is made of")
    options = parser.parse_args()
    measures = of_revision(options.rev) if options.rev else of_tree(ROOT)
    if options.write:
        from tests.infrastructure.picture import pictures

        columns = {f"before ({BEFORE})": of_revision(BEFORE), "after": measures}
        page = between(options.write.read_text(), "measures", table(columns))
        options.write.write_text(between(page, "pictures", pictures()))
        return
    sys.stdout.write(table({options.rev or "this checkout": measures}))
    for measure in measures if options.verbose else ():
        if measure.items:
            sys.stdout.write(f"\n{measure.name}\n" + "".join(f"  {item}\n" for item in measure.items))


if __name__ == "__main__":
    main()

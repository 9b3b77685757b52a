"""The product's modules and who imports whom, read by AST from any checkout: nothing is imported or run."""

from __future__ import annotations

import ast
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: The group of tests that look at all of the source.
SOURCE = "source"
PACKAGES = ("engine", "services", "shared", "roost")


@dataclass
class Module:
    """One file. runtime: the product's modules that it imports when it runs, also inside of functions; typing: those
    that it imports under `if TYPE_CHECKING:` only."""

    name: str
    path: Path
    tree: ast.Module
    lines: int
    runtime: set[str] = field(default_factory=set)
    typing: set[str] = field(default_factory=set)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All of the tree: a dozen tests look at each, and to walk costs more than to look."""
        return list(ast.walk(self.tree))

    @property
    def classes(self) -> list[ast.ClassDef]:
        """Those within others and in functions too."""
        found, waiting = [], list(statements(self.tree))
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.ClassDef):
                found.append(node)
            waiting += statements(node)
        return found

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing but a docstring in it."""
        return all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in self.tree.body)

    @property
    def daemon(self) -> str:
        """The daemon it belongs to; empty: none."""
        parts = self.name.split(".")
        return parts[1] if parts[0] == "services" and len(parts) > 1 else ""


class House:
    """All modules of a checkout."""

    def __init__(self, root: Path = ROOT, packages: Iterable[str] = PACKAGES) -> None:
        self.root = root
        self.modules: dict[str, Module] = {}
        for package in packages:
            for path in sorted((root / package).rglob("*.py")):
                name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
                source = path.read_text()
                self.modules[name] = Module(name, path, ast.parse(source), source.count("\n"))
        for module in self.modules.values():
            for node, typing in _imports(module.tree):
                found = set(self._targets(module, node)) - {module.name}
                (module.typing if typing else module.runtime).update(found)
            module.typing -= module.runtime

    def _targets(self, module: Module, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in self.modules)
            return
        base = node.module or ""
        if node.level:
            package = module.name.split(".")
            package = package if module.path.name == "__init__.py" else package[:-1]
            base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [base])])
        for alias in node.names:
            for name in (f"{base}.{alias.name}", base):
                if name in self.modules:
                    yield name
                    break

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        """Module -> who imports it, for whatever reason."""
        found: dict[str, set[str]] = {name: set() for name in self.modules}
        for module in self.modules.values():
            for target in module.runtime | module.typing:
                found[target].add(module.name)
        return found

    def runtime_graph(self) -> dict[str, set[str]]:
        return {module.name: module.runtime for module in self.modules.values()}

    def whole_graph(self) -> dict[str, set[str]]:
        return {module.name: module.runtime | module.typing for module in self.modules.values()}


@cache
def house_of(*packages: str) -> House:
    """Of this checkout, read once in a process. Tests that use it run in one worker: SOURCE."""
    house = House(packages=packages or PACKAGES)
    gc.freeze()  # a million objects that stay: collections of garbage need not look at them
    return house


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Those directly within a module, class, function or compound statement."""
    for name in ("body", "orelse", "finalbody"):
        yield from getattr(node, name, ())
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield from part.body


def _imports(tree: ast.Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import, and whether it stands under `if TYPE_CHECKING:`."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, typing = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, typing
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            waiting += [(child, True) for child in node.body]
            waiting += [(child, typing) for child in node.orelse]
        else:
            waiting += [(child, typing) for child in statements(node)]


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """The strongly connected components of more than one node (Tarjan's algorithm, without recursion)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []
    for start in sorted(graph):
        if start in order:
            continue
        work = [(start, iter(sorted(graph[start])))]
        order[start] = lowest[start] = len(order)
        stack.append(start)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in graph:
                    continue
                if target not in order:
                    order[target] = lowest[target] = len(order)
                    stack.append(target)
                    work.append((target, iter(sorted(graph[target]))))
                    break
                if target in stack:
                    lowest[node] = min(lowest[node], order[target])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    members = set(stack[stack.index(node) :])
                    del stack[stack.index(node) :]
                    if len(members) > 1:
                        found.append(members)
    return sorted(found, key=lambda members: (-len(members), min(members)))


def merged(graph: Mapping[str, set[str]], room: Callable[[str], str]) -> dict[str, set[str]]:
    """The same graph of rooms: `room` names that of a node."""
    found: dict[str, set[str]] = {}
    for name, targets in graph.items():
        mine = found.setdefault(room(name), set())
        mine.update(room(target) for target in targets)
        mine.discard(room(name))
    return found


def longest_chain(graph: Mapping[str, set[str]]) -> list[str]:
    """The longest chain of imports; a circle counts as one of its modules."""
    of = {name: name for name in graph}
    for members in circles(graph):
        of |= dict.fromkeys(members, min(members))
    plain = merged({name: targets & graph.keys() for name, targets in graph.items()}, of.__getitem__)
    best: dict[str, list[str]] = {}

    def chain(name: str) -> list[str]:
        if name not in best:
            below = max((chain(target) for target in sorted(plain[name])), key=len, default=[])
            best[name] = [name, *below]
        return best[name]

    return max((chain(name) for name in sorted(plain)), key=len, default=[])


def reduced(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Without the arrows that a chain of others makes superfluous. Of a graph without circles."""
    below: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in below:
            below[name] = set().union(*({target} | reach(target) for target in graph.get(name, ())))
        return below[name]

    return {
        name: {one for one in targets if not any(one in reach(other) for other in targets - {one})}
        for name, targets in graph.items()
    }

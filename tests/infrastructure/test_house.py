"""The rules of the house that import-linter's contracts cannot say."""

import ast
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.infrastructure.house import single_protocols
from tests.infrastructure.imports import SOURCE, House, Module, circles, house_of
from tests.infrastructure.picture import arrows, daemons, rooms_of

pytestmark = pytest.mark.xdist_group(SOURCE)

ROOT = Path(__file__).parents[2]
# A decision takes what it needs as arguments: no I/O, no clock, no randomness, no log, no environment.
IMPURE = {
    "aiohttp",
    "asyncio",
    "httpx",
    "logging",
    "os",
    "psutil",
    "random",
    "requests",
    "secrets",
    "socket",
    "sqlite3",
    "structlog",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib.request",
    "uuid",
}
MODULE_LINES = 800

NOT_YET = "not mended yet"
#: What the checks below find and is meant, or is not mended yet: what they print -> why. What is found no more must go.
EXCEPTIONS: dict[str, str] = {
    # The language: an expression calls functions, some of which evaluate expressions and print ads.
    "run-time circle: shared.classad": "evaluation and functions are mutually recursive, as the language is",
    "run-time circle: shared.classad.expr, shared.classad.unparse": "an expression's text is what unparse makes of it",
    "typing circle: shared.classad": "values may be ads and expressions, which hold values",
    (
        "typing circle: shared.classad.columnar.matching, shared.classad.columnar.probe, shared.classad.columnar.ranks"
    ): NOT_YET,
    "one implementation: shared.classad.context.Context: shared.classad.evaluate.Evaluation": (
        "functions see this much of an evaluation, which imports them"
    ),
}


def product_modules() -> list[Module]:
    return [*house_of().modules.values(), *house_of("bench").modules.values()]


def is_pure_by_place(module: str) -> bool:
    """Whether the module lies where decisions lie: in the engine, or in the `core` of a daemon."""
    return module.split(".")[0] == "engine" or "core" in module.split(".")


def imported(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def is_impure(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in IMPURE)


def test_decisions_have_no_io_clock_or_randomness():
    decisions = [module for module in product_modules() if is_pure_by_place(module.name)]
    assert decisions
    found = [f"{one.name} imports {name}" for one in decisions for name in imported(one) if is_impure(name)]
    assert not found, "decisions take such things as arguments"


def test_long_modules_say_why_in_their_docstring():
    silent = []
    for module in product_modules():
        docstring = ast.get_docstring(module.tree) or ""
        if module.lines > MODULE_LINES and not re.search(r"(?i)\b(long|longer|length|lines)\b", docstring):
            silent.append(module.name)
    assert not silent, f"over {MODULE_LINES} lines: split it, or give the reason in the docstring"


# -- No knots


@pytest.fixture(scope="module")
def house():
    return house_of()


def hold(what: str, found: Iterable[str]) -> None:
    """Nothing is found but what EXCEPTIONS gives a reason for. what: how the names of this check's exceptions begin."""
    allowed = {name for name in EXCEPTIONS if name.startswith(f"{what}: ")}
    named = {f"{what}: {one}" for one in found}
    assert not named - allowed, f"{what}: mend it, or give a reason in EXCEPTIONS"
    gone = {name for name in allowed - named if EXCEPTIONS[name] != NOT_YET}  # whoever mends need not come here at once
    assert not gone, "found no more: take it out of EXCEPTIONS"


def name_of(members: set[str]) -> str:
    """A circle's: its modules, or the package of many."""
    if len(members) <= 4:
        return ", ".join(sorted(members))
    return os.path.commonpath([name.replace(".", "/") for name in members]).replace("/", ".")


def test_no_circle_of_imports_at_run_time(house):
    hold("run-time circle", (name_of(members) for members in circles(house.runtime_graph())))


def test_imports_for_typing_close_no_circle(house):
    """What a circle of modules consists of is one module to whoever reads it, whatever the interpreter sees."""
    runtime = {frozenset(members) for members in circles(house.runtime_graph())}
    whole = [members for members in circles(house.whole_graph()) if frozenset(members) not in runtime]
    hold("typing circle", map(name_of, whole))


def test_rooms_of_a_daemon_are_in_no_circle(house):
    found = [(daemon, members) for daemon in daemons(house) for members in circles(rooms_of(house, daemon))]
    hold("rooms in a circle", (f"{daemon}: {', '.join(sorted(members))}" for daemon, members in found))


def test_an_object_is_whole_when_it_is_made(house):
    """It does not ask itself what it has."""
    found = []
    for module in house.modules.values():
        for node in module.nodes:
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or len(node.args) < 2:
                continue
            of_self = isinstance(node.args[0], ast.Name) and node.args[0].id == "self"
            if node.func.id in ("hasattr", "getattr") and of_self and isinstance(node.args[1], ast.Constant):
                found.append(f"{module.name}: {ast.unparse(node)}")
    hold("asks itself", found)


def test_nobody_assigns_callbacks_of_others(house):
    """`x.on_change = ...`: who calls back is an argument when the object is made, or what is wanted is returned."""
    found = []
    for module in house.modules.values():
        for node in module.nodes:
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                if not isinstance(target, ast.Attribute) or not target.attr.startswith("on_"):
                    continue
                if not (isinstance(target.value, ast.Name) and target.value.id == "self"):
                    found.append(f"{module.name}: {ast.unparse(target)}")
    hold("late binding", found)


def test_an_interface_has_two_implementations(house):
    """One of them may be a test's double."""
    hold("one implementation", single_protocols(house, house_of("tests")))


def test_the_checks_see_what_they_look_for(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("")
    (tmp_path / "shop" / "a.py").write_text("from shop import b\n")
    (tmp_path / "shop" / "b.py").write_text("def late():\n    from shop.a import x\n")
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from shop import d\n"
    (tmp_path / "shop" / "c.py").write_text(guarded)
    (tmp_path / "shop" / "d.py").write_text("from . import c\n")
    found = House(tmp_path, ["shop"])
    assert circles(found.runtime_graph()) == [{"shop.a", "shop.b"}]
    assert circles(found.whole_graph()) == [{"shop.a", "shop.b"}, {"shop.c", "shop.d"}]
    assert found.modules["shop.c"].typing == {"shop.d"}
    with pytest.raises(AssertionError):
        hold("no such check", ["a"])


# -- Lock files


def locked(lock: str) -> dict[str, str]:
    pins = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", (ROOT / lock).read_text(), flags=re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pins}


def test_the_lock_files_cover_what_pyproject_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    runtime, image, development = (locked(f"requirements{kind}.lock") for kind in ("", "-image", "-dev"))
    asked = [(text, runtime) for text in project["dependencies"]]
    asked += [(text, image) for text in extras["otel"] + project["dependencies"]]
    asked += [(text, development) for text in extras["dev"] + project["dependencies"]]
    for text, pins in asked:
        requirement = Requirement(text)
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{text} is not locked: run bin/lock"
        assert requirement.specifier.contains(version), f"{text}, but {version} is locked: run bin/lock"
    for pins in (image, development):
        assert {name: pins.get(name) for name in runtime} == runtime
    dockerfile = (ROOT / "compose" / "Dockerfile").read_text()
    assert "--require-hashes --requirement requirements-image.lock" in dockerfile


def test_the_lock_files_hold_hashes_and_no_addresses():
    for kind in ("", "-image", "-sbom", "-reference", "-clients", "-dev"):
        lock = f"requirements{kind}.lock"
        text = (ROOT / lock).read_text()
        assert "://" not in text
        assert not re.findall(r"^\s*--(?!hash=)", text, flags=re.MULTILINE)
        for pin in re.findall(r"^[A-Za-z0-9._-]+==.*\\\n    (.*)", text, flags=re.MULTILINE):
            assert pin.startswith("--hash=sha256:")


def test_arrows_point_from_services_to_shared_only():
    found = arrows()
    assert any(name.startswith("services.") for name in found)
    for name, targets in found.items():
        if name.startswith("shared."):
            assert all(target.startswith("shared.") for target in targets), name
        if name.startswith(("services.", "engine.")):
            assert all(target.startswith(("engine.", "shared.")) for target in targets), name

"""The rules of the house that import-linter's contracts cannot say."""

import ast
import configparser
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.infrastructure.picture import arrows

ROOT = Path(__file__).parents[2]
PRODUCT = ("services", "shared", "roost", "bench")
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
IO_OF_OURS = ("shared.bus", "shared.state")
MODULE_LINES = 500


def product_modules() -> Iterator[tuple[str, Path]]:
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


def hands() -> list[str]:
    """Patterns of the modules that .importlinter lists as doing I/O; a `*` stands for one daemon."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    lines = contracts["importlinter:contract:decisions-are-pure"]["ignore_imports"].split("\n")
    return [line.split("->")[0].strip() for line in lines if "->" in line]


def is_one_of(module: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(module, one) and module.count(".") == one.count(".") for one in patterns)


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def is_impure(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in IMPURE)


def test_decisions_have_no_io_clock_or_randomness():
    patterns = hands()
    assert patterns
    found = [
        f"{name} imports {module}"
        for name, path in product_modules()
        if name.startswith("services.") and not is_one_of(name, patterns)
        for module in imported(path)
        if is_impure(module)
    ]
    assert not found, "decisions take such things as arguments (or list the module as hands in .importlinter)"


def test_hands_exist_and_do_io():
    doing = [
        name
        for name, path in product_modules()
        if any(is_impure(module) or module.startswith(IO_OF_OURS) for module in imported(path))
        or name.endswith(".__main__")
    ]
    idle = [pattern for pattern in hands() if not any(is_one_of(name, [pattern]) for name in doing)]
    assert not idle, "not there, or decisions: take them out of .importlinter"


def test_the_page_on_architecture_names_every_module_of_a_daemon():
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (\w+) \| (`.*) \| (`.*) \|$", page, flags=re.MULTILINE)
    written = {
        f"services.{daemon}.{module.replace('/', '.')}": column == 1
        for daemon, *columns in rows
        for column, text in enumerate(columns)
        for module in re.findall(r"`([^`]+)`", text)
    }
    there = {
        name: is_one_of(name, hands())
        for name, path in product_modules()
        if name.startswith("services.") and path.stem not in ("__init__", "__main__")
    }
    assert written == there  # module: whether it is one of the hands


def test_long_modules_say_why_in_their_docstring():
    silent = []
    for name, path in product_modules():
        source = path.read_text()
        docstring = ast.get_docstring(ast.parse(source)) or ""
        if source.count("\n") > MODULE_LINES and not re.search(r"(?i)\b(long|longer|length|lines)\b", docstring):
            silent.append(name)
    assert not silent, f"over {MODULE_LINES} lines: split it, or give the reason in the docstring"


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
    for lock in ("requirements.lock", "requirements-image.lock", "requirements-dev.lock"):
        text = (ROOT / lock).read_text()
        assert "://" not in text
        assert not re.findall(r"^\s*--(?!hash=)", text, flags=re.MULTILINE)
        for pin in re.findall(r"^[A-Za-z0-9._-]+==.*\\\n    (.*)", text, flags=re.MULTILINE):
            assert pin.startswith("--hash=sha256:")


def test_arrows_point_from_services_to_shared_only():
    found = arrows()
    assert any(name.startswith("services.") for name in found)
    for name, targets in found.items():
        if name.startswith(("services.", "shared.")):
            assert all(target.startswith("shared.") for target in targets), name

"""Puts the dashboard's modules into one script, which a browser gets with one request in place of forty.

Each module stays in a function of its own, in the order in which the browser would run them. It takes the few forms of
import and export that the modules use, each on a line of its own, and refuses all others. Pure.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Final

_IMPORT: Final = re.compile(r'import (?:(?P<default>\w+)|\{(?P<names>[^{}]*)\}) from "(?P<path>\.[^"]+)";')
_AGAIN: Final = re.compile(r'export \{(?P<names>[^{}]*)\}(?: from "(?P<path>\.[^"]+)")?;')
_EXPORT: Final = re.compile(r"export (?P<rest>(?:async function|function|class|const) (?P<name>\w+).*)")
_NAME: Final = re.compile(r"\w+(?: as \w+)?")


def bundle(modules: Mapping[str, str], entry: str) -> str:
    """The script that does what `entry` and all that it imports do. modules: text by path, such as lib/api.js; what is
    not among them is imported as it is. The script is to stand in a folder beside those of the modules, as what they
    load later is named from theirs. Raises ValueError, which names the module and the line."""
    return _Bundle(modules).whole(entry)


class _Bundle:
    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules
        self._variables: dict[str, str] = {}  # by path, of those that are done
        self._under_way: list[str] = []
        self._outside: list[str] = []
        self._parts: list[str] = []

    def whole(self, entry: str) -> str:
        self._variable(entry)
        return "\n".join([*self._outside, *self._parts, ""])

    def _variable(self, path: str) -> str:
        """Which variable has what the module exports; it is put in before, if it is not there yet."""
        if path in self._under_way:
            raise ValueError(f"{' imports '.join([*self._under_way, path])}: a circle")
        if path not in self._variables:
            number = len(self._variables) + len(self._under_way)
            name = f"module{number}_{re.sub(r'[^a-z]', '_', posixpath.basename(path)[:-3])}"
            if path in self._modules:
                self._under_way.append(path)
                body = self._body(path)
                self._under_way.pop()
                self._parts.append(f"// {path}\nconst {name} = (() => {{\n{body}\n}})();")
            else:
                self._outside.append(f'import * as {name} from "../{path}";')
            self._variables[path] = name
        return self._variables[path]

    def _body(self, path: str) -> str:
        lines: list[str] = []
        exported: list[str] = []
        for number, line in enumerate(self._modules[path].splitlines(), 1):
            if found := _IMPORT.fullmatch(line):
                names = f"default: {found['default']}" if found["default"] else _bound(found["names"])
                line = f"const {{ {names} }} = {self._variable(_path(path, found['path']))};"
            elif found := _AGAIN.fullmatch(line):
                if found["path"]:
                    source = self._variable(_path(path, found["path"]))
                    exported += [f"{new}: {source}.{old}" for old, new in _pairs(found["names"])]
                else:
                    exported += [f"{new}: {old}" for old, new in _pairs(found["names"])]
                continue
            elif found := _EXPORT.fullmatch(line):
                exported.append(found["name"])
                line = found["rest"]
            elif line.startswith(("import ", "import{", "export ", "export{")):
                raise ValueError(f"{path}, line {number}: a form of import or export that is not known: {line[:100]}")
            lines.append(line)
        return "\n".join([*lines, f"return {{ {', '.join(exported)} }};"])


def _path(importer: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), name))


def _pairs(names: str) -> list[tuple[str, str]]:
    """(name there, name here) of `a, b as c`."""
    pairs = []
    for one in _NAME.findall(names):
        old, _, new = one.partition(" as ")
        pairs.append((old, new or old))
    return pairs


def _bound(names: str) -> str:
    return ", ".join(old if old == new else f"{old}: {new}" for old, new in _pairs(names))

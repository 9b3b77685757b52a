#!/usr/bin/env python3
"""One job of the demo: survey a list of Python source files, print what was found as JSON.

usage: survey.py LIST     (LIST: a text file, one path a line)
"""

import ast
import collections
import json
import sys
from typing import Any


def survey(paths: list[str]) -> dict[str, Any]:
    """Counts over the files: files, lines, functions, classes, imports {module: files}, longest [lines, name]."""
    found: dict[str, Any] = {"files": 0, "lines": 0, "functions": 0, "classes": 0, "skipped": 0, "longest": [0, ""]}
    imports: collections.Counter[str] = collections.Counter()
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
            tree = ast.parse(text)
        except (SyntaxError, UnicodeDecodeError, ValueError):
            found["skipped"] += 1  # the standard library ships files that are wrong on purpose
            continue
        found["files"] += 1
        found["lines"] += text.count("\n")
        modules: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found["functions"] += 1
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > found["longest"][0]:
                    found["longest"] = [length, f"{node.name} ({path.rpartition('/')[2]}:{node.lineno})"]
            elif isinstance(node, ast.ClassDef):
                found["classes"] += 1
            elif isinstance(node, ast.Import):
                modules.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.partition(".")[0])
        imports.update(modules)
    found["imports"] = dict(imports)
    return found


def merge(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Many surveys as one."""
    whole: dict[str, Any] = {"files": 0, "lines": 0, "functions": 0, "classes": 0, "skipped": 0, "longest": [0, ""]}
    imports: collections.Counter[str] = collections.Counter()
    for part in parts:
        for name in ("files", "lines", "functions", "classes", "skipped"):
            whole[name] += part[name]
        whole["longest"] = max(whole["longest"], part["longest"])
        imports.update(part["imports"])
    whole["imports"] = dict(imports)
    return whole


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as listing:
        json.dump(survey(listing.read().splitlines()), sys.stdout)

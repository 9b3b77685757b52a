"""A picture of who imports whom, for docs/imports.md: python -m tests.infrastructure.picture > docs/imports.md"""

import sys
from collections import defaultdict

import grimp

ROOTS = ("services", "shared", "roost")


def room(module: str) -> str:
    """services.schedd.queue -> services.schedd; roost.cli.q -> roost."""
    parts = module.split(".")
    return parts[0] if parts[0] == "roost" else ".".join(parts[:2])


def arrows() -> dict[str, set[str]]:
    """Each room, and the rooms it imports."""
    graph = grimp.build_graph(*ROOTS, cache_dir=None)
    found: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules - set(ROOTS):
        for imported in graph.find_modules_directly_imported_by(module):
            if imported not in ROOTS and room(imported) != room(module):
                found[room(module)].add(room(imported))
    return found


def picture() -> str:
    found = arrows()
    rooms = sorted({*found, *(target for targets in found.values() for target in targets)})
    lines = ["# Who imports whom", "", "Made by `python -m tests.infrastructure.picture`.", ""]
    lines += ["```mermaid", "graph LR"]
    for root in ROOTS:
        inside = [name for name in rooms if name == root or name.startswith(root + ".")]
        lines += [f"  subgraph {root}", *(f"    {name}" for name in inside), "  end"]
    # One arrow from a daemon to each part of shared it uses; what shared's parts use of each other is in the table.
    lines += [
        f"  {name} --> {target}" for name in rooms for target in sorted(found[name]) if not name.startswith("shared.")
    ]
    lines += ["```", "", "| | imports |", "| --- | --- |"]
    lines += [f"| {name} | {', '.join(sorted(found[name])) or '-'} |" for name in rooms]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(picture())

"""Pictures of who imports whom.

python -m tests.infrastructure.picture > docs/imports.md             # of the whole house
python -m tests.infrastructure.house --write docs/architecture.md    # one of each daemon, into the page
"""

import sys
from collections import defaultdict
from collections.abc import Iterable

import grimp

from tests.infrastructure.imports import House, circles, house_of, merged, reduced

ROOTS = ("engine", "services", "shared", "roost")


def room(module: str) -> str:
    """services.schedd.io.queue_db -> services.schedd; roost.cli.q -> roost."""
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


# One daemon

#: A daemon with fewer rooms has its folders opened, as long as there are no more boxes than this.
FEW, MOST = 9, 26


def rooms_of(house: House, daemon: str, opened: Iterable[str] = (), *, engine: bool = False) -> dict[str, set[str]]:
    """The rooms of a daemon, each with those that it imports, typing's imports too. A room is a folder, written
    `core/`, or a module that lies beside `daemon.py` or in an opened folder. engine: also the parts of the engine."""
    top = f"services.{daemon}"
    modules = house.modules.values()
    folders = {one.name for one in modules if one.name.rpartition(".")[0] == top and one.path.stem == "__init__"}

    def of(name: str) -> str:
        parts = name.split(".")
        if parts[0] == "engine":
            return "/".join(parts[:2])
        if ".".join(parts[:3]) not in folders:
            return parts[2]
        return "/".join(parts[2:4]) if f"{parts[2]}/" in opened and len(parts) > 3 else f"{parts[2]}/"

    wanted = (f"{top}.", "engine.") if engine else (f"{top}.",)
    inside = {
        one.name: {target for target in one.runtime | one.typing if target.startswith(wanted)}
        for one in modules
        if one.name.startswith(f"{top}.") and not one.is_empty and not one.name.endswith(".__main__")
    }
    return merged(inside, of)


def shown_rooms(house: House, daemon: str) -> dict[str, set[str]]:
    """The same as its picture has them, with the parts of the engine that it stands on."""
    opened: list[str] = []
    closed = rooms_of(house, daemon)
    if len(closed) < FEW:
        for folder in sorted((room for room in closed if room.endswith("/")), key=lambda room: (room == "core/", room)):
            if len(rooms_of(house, daemon, [*opened, folder])) <= MOST:
                opened.append(folder)
    return rooms_of(house, daemon, opened, engine=True)


def daemons(house: House) -> list[str]:
    return sorted({one.daemon for one in house.modules.values() if one.daemon})


def daemon_picture(house: House, daemon: str) -> str:
    """Mermaid: the rooms from top to bottom. An arrow that follows from others is left out; one that is part of a
    circle is dotted."""
    found = shown_rooms(house, daemon)
    rooms = sorted({*found, *(target for targets in found.values() for target in targets)})
    knots = circles(found)
    arrows = found if knots else reduced(found)
    lines = ["```mermaid", "graph TD"]
    for room in rooms:
        shape = ("([{}])" if room.startswith("engine/") else "[[{}]]" if room.endswith("/") else "[{}]").format(room)
        lines.append(f"  {_id(room)}{shape}")
    for room in sorted(arrows):
        for target in sorted(arrows[room]):
            knotted = any(room in members and target in members for members in knots)
            lines.append(f"  {_id(room)} {'-.->' if knotted else '-->'} {_id(target)}")
    return "\n".join([*lines, "```"])


def _id(room: str) -> str:
    """Some words mean something in mermaid: end, graph."""
    return "r_" + room.rstrip("/").replace("/", "_")


def pictures() -> str:
    """One of each daemon, under headings."""
    house = house_of()
    parts = [f"### {daemon}\n\n{daemon_picture(house, daemon)}" for daemon in daemons(house)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(picture())

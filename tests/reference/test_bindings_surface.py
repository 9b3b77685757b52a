"""Every public name of HTCondor's module htcondor2 is in Roost's, with the same arguments, defaults and numbers."""

import enum
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.reference
MODULE = Path(__file__).resolve().parents[2] / "bindings" / "modules" / "htcondor2" / "__init__.py"
#: Of HTCondor's own workings, though their names look public.
INSIDE = frozenset(["classad", "htcondor2_impl", "Optional", "Command", "ContactInfo", "Failure"])
#: What programs do not make themselves.
GIVEN = frozenset(["JobEvent", "SubmitResult"])


@pytest.fixture(scope="module")
def ours() -> ModuleType:
    spec = importlib.util.spec_from_file_location("roost_htcondor2", MODULE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def public(thing) -> list[str]:
    return [name for name in dir(thing) if not name.startswith("_")]


def shown(thing) -> list[tuple[str, str]]:
    """The arguments of a function or method and their defaults."""
    found = []
    for one in inspect.signature(thing).parameters.values():
        default = one.default
        if isinstance(default, enum.IntEnum | enum.IntFlag):
            default = int(default)
        if not isinstance(default, str | int | float | None | type):
            default = (
                dict(default) if hasattr(default, "keys") else list(default) if hasattr(default, "__len__") else "?"
            )
        found.append((one.name, str(one.kind), repr(default)))
    return found


def differences(theirs, mine, where: str):
    for name in public(theirs):
        if name in INSIDE or isinstance(getattr(theirs, name), ModuleType):
            continue
        place = f"{where}.{name}"
        if not hasattr(mine, name):
            yield f"{place} is missing"
            continue
        one, other = getattr(theirs, name), getattr(mine, name)
        if isinstance(one, type) and issubclass(one, enum.Enum):
            if {each.name: int(each) for each in one} != {each.name: int(each) for each in other}:
                yield f"{place} has other members"
        elif isinstance(one, type) and not issubclass(one, BaseException):
            yield from differences(one, other, place)
            if name not in GIVEN:
                yield from arguments(one.__init__, other.__init__, place)
        elif callable(one) and (inspect.isfunction(one) or inspect.ismethod(one)):
            yield from arguments(one, other, place)


def arguments(one, other, place: str):
    if (other.__doc__ or "").startswith("Refused"):
        return
    try:
        wanted, found = shown(one), shown(other)
    except ValueError:
        return
    # One that has no default there may have one here.
    missing = [
        (name, default)
        for (name, _, default), mine in zip(wanted, [*found, *[None] * len(wanted)], strict=False)
        if mine is None or mine[0] != name or (mine[2] != default and "_empty" not in default)
    ]
    if missing:
        yield f"{place} lacks {missing}"


def test_every_public_name_is_there_with_its_arguments(reference, ours):
    assert sorted(differences(reference.htcondor, ours, "htcondor2")) == []

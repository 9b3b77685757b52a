"""Both makes of nannies, for tests of what they promise: in Python, and in C where there is a compiler."""

import pytest

from services.startd.forkserver import build
from services.startd.forkserver.client import ForkServer
from tests.integration import isolated_pool

KINDS = ("python", "native")
both = pytest.mark.parametrize("nannies", KINDS)


def knobs_of(kind: str) -> dict[str, str]:
    """What a startd needs to have these; they are compiled where that was not done, or the source has changed."""
    if kind == "native":
        if not build.find_compiler():
            pytest.skip("there is no C compiler here")
        if not build.is_current():
            assert build.compile_to(build.PROGRAM) == ""
    return {"ROOST_NATIVE_SPAWNER": str(kind == "native")}


def use_nannies(kind: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Fork servers and pools with walls have these, if they do not say otherwise."""
    knobs = knobs_of(kind)
    monkeypatch.setitem(ForkServer.__init__.__kwdefaults__, "native", kind == "native")
    for name, value in knobs.items():
        monkeypatch.setitem(isolated_pool.WALLS, name, value)
    return kind

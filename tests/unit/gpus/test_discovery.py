"""What discovery prints, character by character as condor_gpu_discovery (23.9.6) does: GPU-01, GPU-02, TLS-13."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from shared.gpus.discovery import render
from shared.gpus.options import BadOption, parse
from shared.gpus.program import discover
from tests.cases import each
from tests.spec import spec
from tests.unit.gpus.machines import Machine

DATA = Path(__file__).parents[2] / "data" / "reference_gpus" / "discoveries.json.gz"
RECORDED: dict[str, Any] = json.loads(gzip.decompress(DATA.read_bytes()))
LIBRARIES = {"CN": "CUDA NVML", "CUDA": "CUDA", "NVML": "NVML", "OCL": "OpenCL", "ALL": "CUDA NVML OpenCL", "NONE": ""}
REASONS = {
    "divided": "-divide divides a memory that all GPUs have alike, too; there only where they differ",
    "ids alike": "GPUs whose UUIDs begin alike get whole UUIDs as ids; there one id",
    "instances": "-opencl without OpenCL devices lists the same as without it; there instances are forgotten",
}


def run(*argv: str, machine: Machine, environment: dict[str, str] | None = None) -> tuple[int, str, str]:
    out: list[str] = []
    errors: list[str] = []
    status = discover(argv, environment=environment or {}, out=out.append, errors=errors.append, backend=machine)
    return status, "".join(out), "".join(errors)


@spec("GPU-01", "GPU-02", "TLS-13")
def test_the_reference_prints_the_same() -> None:
    each(
        RECORDED["runs"],
        prints_the_same,
        lambda one: f"{one['hardware']}-{one['libraries']}-{' '.join(one['options'])}",
    )


def prints_the_same(one: dict[str, Any]) -> None:
    machine = Machine(RECORDED["hardware"][one["hardware"]], LIBRARIES[one["libraries"]])
    status, out, errors = run(*one["options"], machine=machine, environment=one.get("environment"))
    assert status == one.get("code", 0)
    if one.get("differs"):
        assert one["differs"] in REASONS
        assert out != one["stdout"]  # else it need not be marked
    else:
        assert out == one["stdout"]
    assert bool(errors) == bool(status)


def test_a_memory_that_all_have_alike_is_divided_too() -> None:
    machine = Machine(RECORDED["hardware"]["four"])
    out = render(machine.find(opencl=False, dynamic=False), parse(["-divide", "2", "-properties"]))
    assert "GlobalMemoryMb=20268" in out
    assert out.count("DeviceMemoryMb=40536") == 4
    assert out.splitlines()[0].count("GPU-") == 8


def test_gpus_whose_uuids_begin_alike_stay_apart() -> None:
    machine = Machine(RECORDED["hardware"]["twins"])
    first, *_ = render(machine.find(opencl=False, dynamic=False), parse([])).splitlines()
    assert first.count("GPU-cafe0000-") == 2


@pytest.mark.parametrize("argv", [["-nonsense"], ["x"], ["-device"], ["-repeat", "2", "y"], ["-simulate:9"]])
def test_what_is_no_option_is_told_with_the_usage(argv: list[str]) -> None:
    status, out, errors = run(*argv, machine=Machine("driver|0"))
    assert (status, out) == (1, "")
    assert "usage" in errors


def test_options_may_be_cut_short_only_as_far_as_they_are_clear() -> None:
    assert parse(["-prop", "--ext", "-by-i"]).extra
    with pytest.raises(BadOption):
        parse(["-d", "1"])


def test_absurd_numbers_of_copies_do_not_fill_the_memory() -> None:
    machine = Machine(RECORDED["hardware"]["two"])
    _, out, _ = run("-repeat", "999999999", machine=machine)
    assert len(out) < 100_000

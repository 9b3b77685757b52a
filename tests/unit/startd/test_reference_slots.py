"""Our slots against HTCondor's: made-up configurations, and how its startd (23.9.6) divided a machine by each.

tests/data/reference_slots/README.md tells what is recorded. Every attribute recorded of a slot's ad is compared: SLT-01
to SLT-14 (all forms of shares: SLT-04), SLT-23, SLT-25, GPU-03.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.startd import settings
from services.startd.ads import slot_ads
from services.startd.core.machine.detected import Detected, Sample
from services.startd.core.machine.devices import slot_attributes
from services.startd.core.machine.resources import Output
from services.startd.core.machine.slot_plan import SlotPlan, plan_slots
from services.startd.core.machine.slot_types import Partition
from services.startd.core.slots.model import Slot
from shared.classad import UNDEFINED, ClassAd, parse_expr, unparse
from shared.config import Config, load_config
from shared.errors import RoostError
from tests.cases import each
from tests.spec import spec

DATA = Path(__file__).parents[2] / "data" / "reference_slots" / "divisions.jsonl.gz"
#: Free in the two directories that configurations name, KiB.
DISKS = {"/disk/one": 40_000_000, "/disk/two": 10_000_000}
DETECTED = Detected(hostname="refhost.ref", cpus=2, cores=2, memory_mib=24105, swap_kib=8_000_000, arch="X86_64")
#: Why we mean to differ: what `differs` in the data may name.
REASONS = {
    "semicolons": "a semicolon parts shares here; there it is the end of a number, and `auto;` is nothing at all",
    "NUM_SLOTS": "NUM_SLOTS beyond NUM_CPUS is not honoured (SLT-03); there the startd exits",
    "bad output": "an inventory program that says no amount is told so, and shown as 0",
    "auto with a constraint": "the constraint holds for every device of the slot; there it may be forgotten",
    "refused": "a knob that is no number, or neither true nor false, is told; there it is taken for something",
}


def recorded() -> list[dict[str, Any]]:
    with gzip.open(DATA, "rt") as lines:
        return [json.loads(line) for line in lines]


CASES = recorded()


def read(case: dict[str, Any], tmp_path: Path) -> Config:
    path = tmp_path / "condor_config"
    path.write_text("\n".join(["LOCAL_DIR = /pool", "EXECUTE = /disk/one", *case["config"]]) + "\n")
    threads, cores = case.get("cpus", (2, 2))
    machine = {"DETECTED_CPUS": threads, "DETECTED_CPUS_LIMIT": threads, "DETECTED_CORES": threads}
    machine |= {"DETECTED_PHYSICAL_CPUS": cores, "DETECTED_MEMORY": DETECTED.memory_mib}
    overrides = {name: str(value) for name, value in machine.items()}
    return load_config([path], subsystem="STARTD", env={}, overrides=overrides)


def divided(case: dict[str, Any], config: Config) -> SlotPlan:
    outputs = {name: Output(text) for name, text in case.get("outputs", {}).items()}
    return plan_slots(config, DETECTED, lambda path: Partition(path.rstrip("/"), DISKS[path.rstrip("/")]), outputs)


def ads_of(case: dict[str, Any], config: Config) -> list[ClassAd]:
    found = divided(case, config)
    detected = replace(DETECTED, cpus=case.get("cpus", (2, 2))[0])
    around = slot_ads.MachineInfo(
        "refhost.ref", 1, detected, found.amounts, len(found.slots), settings.read(config, detected), found.stock
    )
    base, sample = slot_ads.machine_ad(around), Sample(free_swap_kib=5_316_480)
    made = []
    for plan in found.slots:
        slot = Slot.planned(plan, "refhost.ref", 0.0)
        others = slot_ads.RelatedSlots(parts=[slot_attributes(slot, found.stock, found.partitions[plan.partition])])
        made.append(slot_ads.slot_ad(base, slot, sample, around, others, 0.0))
    return made


def plain(ad: ClassAd, name: str) -> Any:
    """A value that can be compared; of a list of devices, their names."""
    if name.startswith("Available"):
        expr = ad.lookup(name)
        return None if expr is None else unparse(expr)
    value = ad.eval(name)
    if isinstance(value, ClassAd):
        return {key.lower(): value.eval(key) for key in value}
    return None if value is UNDEFINED else value


@spec(
    "SLT-01",
    "SLT-02",
    "SLT-03",
    "SLT-04",
    "SLT-05",
    "SLT-06",
    "SLT-07",
    "SLT-08",
    "SLT-09",
    "SLT-10",
    "SLT-11",
    "SLT-12",
    "SLT-13",
    "SLT-14",
    "SLT-23",
    "SLT-25",
    "GPU-03",
)
def test_the_reference_divides_a_machine_alike(tmp_path: Path) -> None:
    def check(case: dict[str, Any]) -> None:
        divides_alike(case, Path(tempfile.mkdtemp(dir=tmp_path)))

    each(CASES, check, lambda case: case["name"])


def divides_alike(case: dict[str, Any], tmp_path: Path) -> None:
    if case.get("differs"):
        assert case["differs"] in REASONS
        return
    if "slots" not in case:
        with pytest.raises(RoostError):
            divided(case, read(case, tmp_path))
        return
    ads = ads_of(case, read(case, tmp_path))
    assert len(ads) == len(case["slots"])
    for ours, theirs in zip(ads, case["slots"], strict=True):
        expected = ClassAd({name: parse_expr(text, "old") for name, text in theirs.items()})
        assert {name: plain(ours, name) for name in expected} == {name: plain(expected, name) for name in expected}


def test_few_of_the_recorded_divisions_are_meant_to_differ() -> None:
    differing = [case["name"] for case in CASES if case.get("differs")]
    assert len(CASES) > 600
    assert len(differing) < 30
    assert sum("slots" not in case for case in CASES) > 80  # refusals are among them

"""Small pools for explanations."""

from __future__ import annotations

from engine.analyze import Slots
from shared.classad import ClassAd, parse_ad
from shared.classad.columnar import Table

NOW = 1_000.0
WITHIN = (
    "(TARGET.RequestCpus ?: 1) <= MY.Cpus && MY.Cpus > 0 && (TARGET.RequestMemory ?: 1) <= MY.Memory && MY.Memory > 0"
)


def slot(name: str, **more: object) -> ClassAd:
    """A static slot of 4 cpus and 8 GiB, as a startd describes it. Texts that begin with `=` are expressions."""
    ad = parse_ad(f"[ Start = true; WithinResourceLimits = {WITHIN}; Requirements = START && WithinResourceLimits ]")
    values: dict[str, object] = {
        "Name": name, "Machine": name.partition("@")[2], "State": "Unclaimed", "Activity": "Idle", "Arch": "X86_64",
        "OpSys": "LINUX", "Cpus": 4, "Memory": 8192, "MachineResources": "Cpus Memory Disk Swap",
        "TotalSlotCpus": 4, "TotalSlotMemory": 8192,
    }  # fmt: skip
    for key, value in {**values, **more}.items():
        put(ad, key, value)
    return ad


def job(requirements: str = "TARGET.Memory >= RequestMemory && TARGET.Cpus >= RequestCpus", **more: object) -> ClassAd:
    ad = ClassAd({"ClusterId": 12, "ProcId": 0, "JobStatus": 1, "User": "alice@pool", "Owner": "alice"})
    for key, value in {"RequestMemory": 1024, "RequestCpus": 1, "Requirements": "=" + requirements, **more}.items():
        put(ad, key, value)
    return ad


def put(ad: ClassAd, key: str, value: object) -> None:
    if isinstance(value, str) and value.startswith("="):
        ad.update(parse_ad(f"[ {key} = {value[1:]} ]"))
    else:
        ad[key] = value


def table(ads: list[ClassAd]) -> Table:
    made = Table()
    for ad in ads:
        made.put(str(ad.eval("Name")), ad)
    made.flush()
    return made


def pool(*ads: ClassAd, **more: object) -> Slots:
    return Slots(table(list(ads)), NOW, **more)  # type: ignore[arg-type]

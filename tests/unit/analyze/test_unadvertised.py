"""What jobs ask for that HTCondor's slots have and slots here never do."""

import re
from pathlib import Path

from engine.analyze import explain_job, to_map
from roost.cli.analyze import Paint, job_lines
from shared.effects import by_name
from shared.effects.machine_attributes import NEVER
from tests.unit.analyze.pools import job, pool, slot

ROOT = Path(__file__).parents[3]
#: Names that jobs, their logs or the configuration have too, so that code which publishes no slot has them.
ELSEWHERE = {"UpdatesSequenced", "CpusUsage", "DiskUsage", "NumPids", "CondorScratchDir", "CpuBusy"}


def test_a_condition_on_what_no_slot_ever_tells_is_told_with_the_reason():
    report = explain_job(pool(slot("a"), slot("b")), job("TARGET.HasJICLocalConfig && hassshd && TARGET.Cpus > 0"))
    assert dict(report.unadvertised) == {name: by_name(NEVER)[name] for name in ("HasJICLocalConfig", "HasSshd")}
    lines = list(job_lines(to_map(report), reverse=False, paint=Paint(on=False)))
    assert "    HasJICLocalConfig: jobs come from access points only" in lines


def test_what_a_job_or_an_administrator_has_under_such_a_name_is_not_told():
    slots = pool(slot("a"), slot("b", CloudRegion="eu"))
    asks = job('TARGET.CloudRegion == "eu" && HasSshd && MY.HasJava =!= true', HasSshd=True)
    assert dict(explain_job(slots, asks).unadvertised) == {}


def test_no_execution_point_has_any_of_them():
    published = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("services/startd", "services/collector", "engine/slots", "shared")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.parts[-2:] != ("config", "catalogue.py")  # templates name CloudInstanceID for STARTD_ATTRS
        and path.parent.name != "effects"
    )
    assert "HasDocker" in published
    quoted = set(re.findall(r"""(?<=["'])\w+(?=["'])""", published.lower()))
    assert [name for name in by_name(NEVER) if name.lower() in quoted and name not in ELSEWHERE] == []

"""What a submit file is, in one piece (TLS-04): key = value, queue, +Attr, defaults of requests, $$() at the match."""

from dataclasses import replace
from pathlib import Path

import pytest

from roost.submit import Description, SubmitContext
from services.schedd.core.job_launch_ad import expand_dollar_dollar
from shared.classad import ClassAd
from shared.config import ConfigError
from tests.spec import spec

PLACE = SubmitContext(Path("/tmp"), "job.sub", "alice", {}, "example.org")


def clusters(text):
    return list(Description(text, PLACE, now=1e9).clusters())


@spec("TLS-04")
def test_a_submit_file_becomes_jobs():
    (cluster,) = clusters(
        "executable = /bin/echo\narguments = $(Process) $(word) $$(Arch) $$(Room:none)\n"
        '+Project = "physics"\nMY.Deadline = 12 * 3600\nRequest_Cpus = 2\nqueue 2 word in (a, b)\n'
    )
    jobs = [ClassAd({**cluster.attributes, **proc}) for proc in cluster.procs]
    assert [job.eval("ProcId") for job in jobs] == [0, 1, 2, 3]
    assert [job.eval("Args") or job.eval("Arguments") for job in jobs] == [
        f"{number} {word} $$(Arch) $$(Room:none)" for number, word in enumerate("aabb")
    ]
    assert {job.eval("Project") for job in jobs} == {"physics"}
    assert {job.eval("Deadline") for job in jobs} == {43200}
    assert {job.eval("RequestCpus") for job in jobs} == {2}
    slot = ClassAd({"Arch": "X86_64", "Cpus": 4})
    found = expand_dollar_dollar(jobs[3], slot, 1e9)
    assert not found.problem
    assert found.changes.get("Args", found.changes.get("Arguments")) == "3 b X86_64 none"
    assert found.changes["MATCH_EXP_Arch"] == "X86_64"


@spec("TLS-04")
def test_items_end_where_lines_do(tmp_path):
    """Whatever else a name has in it, and also where the last line has no end."""
    (tmp_path / "items").write_bytes("one\x0ctwo\r\nthr\u2028ee\nfour".encode())
    text = 'executable = /bin/echo\n+Word = "$(name)"\nqueue name from '
    place = replace(PLACE, directory=tmp_path)
    said = (tmp_path / "items").read_bytes().decode()
    for source in ("items", f"cat {tmp_path}/items |", "-"):
        (cluster,) = Description(text + source + "\n", place, now=1e9, stdin=lambda: said).clusters()
        found = [ClassAd({**cluster.attributes, **proc}) for proc in cluster.procs]
        assert [job.eval("Word") for job in found] == ["one\x0ctwo", "thr\u2028ee", "four"]


@spec("TLS-04")
def test_requests_that_are_not_made_have_defaults():
    (cluster,) = clusters("executable = /bin/true\nqueue\n")
    job = ClassAd({**cluster.attributes, **cluster.procs[0], "ImageSize": 2048, "DiskUsage": 77})
    assert job.eval("RequestCpus") == 1
    assert job.eval("RequestMemory") == 2
    assert job.eval("RequestDisk") == 77
    job["MemoryUsage"] = 300
    assert job.eval("RequestMemory") == 300


@spec("VMU-05")
def test_jobs_that_are_virtual_machines_match_machines_that_run_them():
    """What is added to their Requirements."""
    text = "universe = vm\nexecutable = guest\nvm_type = kvm\nvm_memory = 64\nvm_disk = a.img:vda:w\nqueue\n"
    (cluster,) = clusters(text)
    job = ClassAd({**cluster.attributes, **cluster.procs[0]})
    able = {"Arch": PLACE.arch, "HasVM": True, "VM_Type": "kvm", "VM_AvailNum": 1, "VM_Memory": 64, "TotalMemory": 64}
    able |= {"Disk": 1 << 30, "HasFileTransfer": True}

    def fits(**attrs):
        return job.eval("Requirements", target=ClassAd(able | attrs))

    assert fits() is True
    for worse in ({"HasVM": False}, {"VM_Type": "xen"}, {"VM_AvailNum": 0}, {"VM_Memory": 63}):
        assert fits(**worse) is False, worse


@pytest.mark.parametrize("name", ["priority", "prio"])
@pytest.mark.parametrize("value", ["1e400", "-1e400", 'real("NaN")'])
def test_a_priority_without_an_end_is_refused_with_its_place(name, value):
    with pytest.raises(ConfigError, match=r"job.sub, line 2: .* is out of bounds"):
        clusters(f"executable = /bin/true\n{name} = {value}\nqueue\n")


def test_a_priority_is_a_whole_number():
    (cluster,) = clusters("executable = /bin/true\nprio = 2.7\nqueue\n")
    assert ClassAd(cluster.attributes).eval("JobPrio") == 2


@pytest.mark.parametrize("command", ["deferral_window", "deferral_prep_time", "cron_window", "cron_prep_time"])
@pytest.mark.parametrize("value", ["3.5", "-1", "true", '"a"'])
def test_a_deferrals_seconds_are_no_fraction(command, value):
    text = f"executable = /bin/true\ndeferral_time = 5\n{command} = {value}\nqueue\n"
    with pytest.raises(ConfigError, match=rf"job.sub, line 3: {command} = .* is no non-negative integer"):
        clusters(text)


def test_a_number_may_begin_with_a_zero():
    (cluster,) = clusters("executable = /bin/true\npriority = 08\nmax_retries = +010\nqueue\n")
    assert (cluster.attributes["JobPrio"], cluster.attributes["JobMaxRetries"]) == (8, 10)


def test_requirements_of_ones_own_that_are_empty_leave_what_there_is():
    (cluster,) = clusters("executable = /bin/true\n+Requirements =\nqueue\n")
    assert "TARGET.Memory >= RequestMemory" in str(cluster.attributes["Requirements"])


@pytest.mark.parametrize(("value", "taken"), [("3", True), ("2.5", True), ("0", False), ("0.0", False), ("true", True)])
def test_getenv_as_a_number_is_a_condition(value, taken):
    place = replace(PLACE, environment={"WORD": "x"})
    (cluster,) = Description(f"executable = /bin/true\ngetenv = {value}\nqueue\n", place, now=1e9).clusters()
    assert cluster.attributes["Environment"] == ("WORD=x" if taken else "")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("cron_minute = x", "CronMinute = x: want numbers"),
        ("cron_hour = 25", "CronHour = 25: want numbers from 0 to 23"),
        ("cron_day_of_month = 31\ncron_month = 2,4", "no such day is in the months"),
        ("cron_hour = */6", ""),
    ],
)
def test_a_calendar_that_the_access_point_would_refuse_is_told_with_its_line(line, told):
    description = Description(f"executable = /bin/true\n{line}\nqueue\n", PLACE, now=1e9)
    assert len(list(description.clusters())) == 1
    found = [str(problem) for problem in description.warnings if "Cron" in str(problem)]
    assert len(found) == bool(told)
    assert all(one.startswith("job.sub, line 2: ") and told in one for one in found)

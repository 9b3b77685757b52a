"""The log of the events of all jobs (EVENT_LOG) and the file of those that are over (HISTORY): what they hold, and how
they are put away."""

import contextlib
import os
import re

import pytest

from engine.queue.jobs import JobId
from roost import JobEventLog, JobEventType
from roost.cli.main import main
from services.schedd.io import user_log
from services.schedd.io.user_log import UserLog, begin, missing_events, rotate
from services.schedd.settings import EventLog, HistoryFile, Settings
from shared import history_file, job_log
from shared.classad import ClassAd, parse_ad
from shared.config import ConfigError, load_config
from shared.job_log import Form, LogHead, append
from shared.messages.claims import JobExit, Usage
from tests.scheddpool import Pool, job_ad
from tests.waiting import eventually


def settings(**knobs):
    return Settings.from_config(load_config([], subsystem="SCHEDD", env={}, overrides=knobs))


def test_knobs():
    assert settings().event_log == EventLog("", 1_000_000, 1)
    assert settings(EVENT_LOG="/x/events", MAX_EVENT_LOG="5").event_log == EventLog("/x/events", 5, 1)
    made = settings(EVENT_LOG="/x/events", MAX_EVENT_LOG="5", EVENT_LOG_MAX_SIZE="0", EVENT_LOG_MAX_ROTATIONS="3")
    assert made.event_log == EventLog("/x/events", 0, 3)
    with pytest.raises(ConfigError, match="EVENT_LOG = events is no absolute path"):
        settings(EVENT_LOG="events")


@pytest.mark.parametrize(
    ("rotations", "left"),
    [
        (0, {"log": "5"}),
        (1, {"log": "5", "log.old": "4"}),
        (3, {"log": "5", "log.1": "4", "log.2": "3", "log.3": "2"}),
    ],
)
def test_it_is_put_away_when_it_is_large(tmp_path, rotations, left):
    log = EventLog(str(tmp_path / "log"), 10, rotations)
    rotate(log)  # there is none
    for number in range(1, 6):
        (tmp_path / "log").write_text(str(number))
        rotate(log)  # too small
        assert (tmp_path / "log").read_text() == str(number)
        if number < 5:
            (tmp_path / "log").write_text(f"{number}".ljust(10))
            rotate(log)
            assert not (tmp_path / "log").exists()
    found = {path.name: path.read_text().strip() for path in tmp_path.iterdir() if path.suffix != ".lock"}
    assert found == left
    never = EventLog(str(tmp_path / "log"), 0, 1)
    (tmp_path / "log").write_text("x" * 1000)
    rotate(never)
    assert (tmp_path / "log").exists()


def test_after_a_crash_what_was_put_away_is_not_written_again(tmp_path):
    log = EventLog(str(tmp_path / "log"), 1, 2)
    (tmp_path / "log.1").write_bytes(b"one\ntwo\n")
    events = [(1, log.path, b"two\n"), (2, log.path, b"three\n")]
    assert missing_events(events, {log.path: log.older()[:1]}) == events[1:]


def test_after_a_crash_events_are_found_however_many_they_are(tmp_path):
    events = [(number, str(tmp_path / "log"), f"{number:0100}\n".encode() * 100) for number in range(60)]
    assert sum(len(text) for _, _, text in events) > 2 * user_log.TAIL
    (tmp_path / "log").write_bytes(b"".join(text for _, _, text in events[:55]))
    assert missing_events(events, {}) == events[55:]


@pytest.mark.parametrize("cut", [1, 3, 10])
def test_after_a_crash_the_rest_of_a_cut_write_follows_its_beginning(tmp_path, cut):
    path = str(tmp_path / "log")
    events = [(1, path, b"one\n...\n"), (2, path, b"other\nmore\n...\n"), (3, path, b"third\n...\n")]
    (tmp_path / "log").write_bytes(events[0][2] + events[1][2][:cut])
    assert missing_events(events, {}) == [(2, path, events[1][2][cut:]), events[2]]
    append(missing_events(events, {}))
    assert missing_events(events, {}) == []


async def test_all_jobs_are_in_it_also_those_without_a_log_of_their_own(tmp_path):
    events = tmp_path / "events"
    knobs = {"EVENT_LOG": str(events), "EVENT_LOG_MAX_SIZE": "700", "EVENT_LOG_MAX_ROTATIONS": "20"}
    async with Pool(tmp_path / "pool", **knobs) as pool:
        run = await pool.run_one(ad=job_ad(UserLog=str(tmp_path / "own")))
        other = await pool.run_one()
        for one in (run, other):
            await pool.startd.report(one, "running", started_at=5.0)
            await pool.startd.finish(one, 3)

        def said():
            text = ""
            for path in sorted(tmp_path.glob("events*")):
                with contextlib.suppress(FileNotFoundError):  # it is being put away
                    text += path.read_text()
            return text

        for job in ("001", "002"):
            for event in ("000", "001", "005"):
                await eventually(lambda event=event, job=job: f"{event} ({job}.000.000)" in said(), what="the event")
        assert "(002.000.000)" not in (tmp_path / "own").read_text()
        assert "005 (001.000.000)" in (tmp_path / "own").read_text()
        assert len(list(tmp_path.glob("events.[0-9]*"))) >= 1
        await eventually(lambda: said().count("005 (001.000.000)") == 1, what="it once, when nothing moves any more")


@pytest.mark.parametrize("form", [Form(), Form("json"), Form("xml")])
def test_the_log_of_all_jobs_begins_with_what_came_before_it(tmp_path, form):
    """As HTCondor's does: its readers find by that which file follows which."""
    log = EventLog(str(tmp_path / "log"), 400, 2, form)
    one = job_log.released(JobId(3, 0), 1e9, "because")
    expected = LogHead(1)
    for number in range(1, 4):
        begin(log, "ap", 1e9 + number)
        begin(log, "ap", 1e9 + number)  # it has begun
        job_log.append([(0, log.path, job_log.written(one, form))] * 3)
        size = (tmp_path / "log").stat().st_size
        with JobEventLog(log.path) as events:
            head, *others = events.events(stop_after=0)
        assert (head.type, head.cluster, [event.cluster for event in others]) == (JobEventType.GENERIC, -1, [3, 3, 3])
        assert head["Info"].startswith(f"Global JobLog: ctime={int(1e9) + number} id={os.getuid()}.{os.getpid()}.")
        assert head["Info"].rstrip().endswith("max_rotation=2 creator_name=<ap>")
        assert job_log.read_log_head(job_log.Event(8, -1, -1, 0.0, {"Info": head["Info"]})) == expected
        expected = LogHead(number + 1, expected.offset + size, 3 * number)
        rotate(log)
    assert [path.stat().st_mode & 0o777 for path in tmp_path.glob("log.lock")] == [0o600]


async def test_a_log_that_can_not_be_put_away_is_told_and_written_all_the_same(tmp_path):
    failed, written = [], []
    log = UserLog(written.append, lambda path, reason: failed.append((path, reason)))
    log.of_all = EventLog(str(tmp_path / "log"), 1, 1)
    (tmp_path / "log.old").mkdir()
    (tmp_path / "log.old" / "x").write_text("x")
    log.write([(1, log.of_all.path, b"one\n")])
    await eventually(lambda: written == [1])
    log.write([(2, log.of_all.path, b"two\n")])
    await log.close()
    assert (tmp_path / "log").read_bytes().endswith(b"one\ntwo\n")
    assert failed[0][0] == log.of_all.path
    assert "can not be put away" in failed[0][1]


def test_where_the_history_is_written_besides():
    """HISTORY: only where an administrator wrote it, for its default is HTCondor's spool."""
    assert settings().history == HistoryFile("", 20_971_520, 2)
    made = settings(HISTORY="/x/history", MAX_HISTORY_LOG="5", MAX_HISTORY_ROTATIONS="7").history
    assert made == HistoryFile("/x/history", 5, 7)
    assert settings(HISTORY="").history.path == ""
    with pytest.raises(ConfigError, match="HISTORY = history is no absolute path"):
        settings(HISTORY="history")


def test_files_put_away_within_one_second_stay_apart(tmp_path):
    path = tmp_path / "history"
    for number in range(4):
        path.write_text(str(number))
        history_file.put_away(path, 1e9, 3)
    assert [one.read_text() for one in history_file.away(path)] == ["1", "2", "3"]
    assert not path.exists()


async def test_jobs_that_left_are_in_the_history_file_too_and_in_its_rotations(tmp_path, capsys):
    history = tmp_path / "history"
    knobs = {"HISTORY": str(history), "MAX_HISTORY_LOG": "3000", "MAX_HISTORY_ROTATIONS": "9"}
    async with Pool(tmp_path / "pool", **knobs) as pool:
        for number in range(4):
            run = await pool.run_one(ad=job_ad(Number=number))
            await pool.startd.report(run, "running", started_at=5.0)
            await pool.startd.finish(run, number)
        await pool.submit()
        await pool.act("remove", "5")
        await eventually(lambda: pool.schedd.updates.log.waiting == 0 and pool.schedd.table.total == 0, what="all over")

        def files():
            return [*history_file.away(history), *([history] if history.exists() else [])]

        def records():
            found = 0
            for one in files():
                with contextlib.suppress(FileNotFoundError):  # it is being put away
                    found += one.read_text().count("\n*** ")
            return found

        await eventually(lambda: records() == 5, what="five records")
        assert len(files()) > 1
        assert {one.stat().st_mode & 0o777 for one in files()} == {0o600}
        assert len(await pool.history()) == 5  # the database has them as before
    capsys.readouterr()
    said = []
    for one in files():
        assert main(["history", "-file", str(one), "-af", "ClusterId", "JobStatus", "ExitCode", "Number"]) == 0
        said += capsys.readouterr().out.splitlines()
    assert sorted(said) == ["1 4 0 0", "2 4 1 1", "3 4 2 2", "4 4 3 3", "5 3 undefined undefined"]


async def test_each_job_that_left_has_a_file_of_its_own_where_that_is_wanted(tmp_path):
    """PER_JOB_HISTORY_DIR: for accounting programs, which remove what they have read."""
    folder = tmp_path / "per-job"
    folder.mkdir()
    async with Pool(tmp_path / "pool", PER_JOB_HISTORY_DIR=f"{folder}/") as pool:
        run = await pool.run_one(ad=job_ad(Number=7, Environment="SECRET=1"))
        await pool.startd.report(run, "running", started_at=5.0)
        await pool.startd.finish(run, 3)
        await pool.submit(procs=2)
        await pool.act("remove", "2")
        names = ["history.1.0", "history.2.0", "history.2.1"]
        await eventually(lambda: sorted(one.name for one in folder.iterdir()) == names, what="three files")
        await eventually(lambda: pool.schedd.updates.log.waiting == 0, what="all written")
    ad = parse_ad((folder / "history.1.0").read_text(), "old")
    assert (ad.eval("ExitCode"), ad.eval("Number"), "Environment" in ad) == (3, 7, False)
    assert {one.stat().st_mode & 0o777 for one in folder.iterdir()} == {0o600}
    with pytest.raises(ConfigError, match="PER_JOB_HISTORY_DIR = here is no absolute path"):
        settings(PER_JOB_HISTORY_DIR="here")


async def test_each_log_has_its_own_form_and_what_is_wanted_besides(tmp_path):
    events, own = tmp_path / "events", tmp_path / "own"
    knobs = {
        "EVENT_LOG": str(events),
        "EVENT_LOG_FORMAT_OPTIONS": "JSON UTC",
        "EVENT_LOG_JOB_AD_INFORMATION_ATTRS": "Owner, Environment",
        "DEFAULT_USERLOG_FORMAT_OPTIONS": "LEGACY",
    }
    async with Pool(tmp_path / "pool", **knobs) as pool:
        wanted = {"UserLogUseXML": True, "JobAdInformationAttrs": "JobPrio,Nothing", "Environment": "SECRET=1"}
        run = await pool.run_one(
            ad=job_ad(UserLog=str(own), UserLogExecuteEventAttrs="FileSystemDomain, Nothing", **wanted)
        )
        await pool.startd.report(run, "running", started_at=5.0)
        other = await pool.run_one(ad=job_ad(UserLog=str(tmp_path / "plain")))
        await pool.startd.report(other, "running", started_at=5.0)
        edits = ClassAd({"JobPrio": 7, "Environment": "SECRET=2"})
        assert await pool.act("edit", "1.0", edits=edits.pack()) == {"1.0": "done"}
        for one in (run, other):
            await pool.startd.finish(one, 3)

        def read(path):
            if not path.exists():
                return []
            with JobEventLog(str(path)) as log:
                return list(log.events(stop_after=0))

        await eventually(lambda: [e.type for e in read(events)].count(JobEventType.JOB_TERMINATED) == 2, what="ends")
    mine = read(own)
    assert own.read_text().startswith("<c>")
    assert [event.type for event in mine if event.type != JobEventType.JOB_AD_INFORMATION] == [
        JobEventType.SUBMIT,
        JobEventType.EXECUTE,
        JobEventType.ATTRIBUTE_UPDATE,
        JobEventType.JOB_TERMINATED,
    ]
    (began,) = (event for event in mine if event.type == JobEventType.EXECUTE)
    assert began["ExecuteProps"]["FileSystemDomain"] == "fs"
    (edited,) = (event for event in mine if event.type == JobEventType.ATTRIBUTE_UPDATE)
    assert (edited["Attribute"], edited["PriorValue"], edited["Value"]) == ("JobPrio", "0", "7")
    told = [event for event in mine if event.type == JobEventType.JOB_AD_INFORMATION]
    assert [event["JobPrio"] for event in told] == [0, 0, 0, 7]
    assert [event["TriggerEventTypeNumber"] for event in told] == [0, 1, 33, 5]
    assert re.match(r"000 \(002\.000\.000\) \d\d/\d\d \d\d:", (tmp_path / "plain").read_text())
    assert events.read_text().startswith("{")
    owners = {event["Owner"] for event in read(events) if event.type == JobEventType.JOB_AD_INFORMATION}
    assert len(owners) == 1
    assert "SECRET" not in events.read_text() + own.read_text()


def test_a_form_that_is_none_is_told_with_its_knob():
    with pytest.raises(ConfigError, match="EVENT_LOG_FORMAT_OPTIONS: 'YAML' is no form of a job's log"):
        settings(EVENT_LOG_FORMAT_OPTIONS="YAML")


async def test_a_run_tells_its_directory_and_the_memory_that_is_its_own(tmp_path):
    """The directory from whichever report comes first: of two runs the second is heard of at its end only."""
    async with Pool(tmp_path / "pool") as pool:
        log = tmp_path / "log"
        run = await pool.run_one(ad=job_ad(UserLog=str(log)))
        await pool.startd.report(run, "running", started_at=5.0, scratch="/execute/dir_1")
        measured = ClassAd({"ProportionalSetSizeKb": 321}).pack()
        await pool.startd.report(run, "running", usage=Usage(image_size_kib=500, memory_mib=1), updates=measured)
        await pool.startd.finish(run)
        other = await pool.run_one(ad=job_ad(UserLog=str(log)))
        await pool.startd.finish(other, started_at=6.0, scratch="/execute/dir_2")

        def read():
            with JobEventLog(str(log)) as events:
                return list(events.events(stop_after=0)) if log.exists() else []

        await eventually(lambda: [e.type for e in read()].count(JobEventType.JOB_TERMINATED) == 2, what="ends")
    began = [event["ExecuteProps"]["CondorScratchDir"] for event in read() if event.type == JobEventType.EXECUTE]
    assert began == ["/execute/dir_1", "/execute/dir_2"]
    assert '\tCondorScratchDir = "/execute/dir_1"\n' in log.read_text()
    (grown,) = (event for event in read() if event.type == JobEventType.IMAGE_SIZE)
    assert (grown["Size"], grown["ProportionalSetSize"]) == (500, 321)


async def test_a_job_that_is_ordered_off_its_machine_leaves_it_before_it_is_held_or_removed(tmp_path):
    """With what was reported of its run last. One that was held before its program began has left nothing."""
    log = tmp_path / "log"
    async with Pool(tmp_path / "pool") as pool:
        runs = [await pool.run_one(ad=job_ad(UserLog=str(log), RequestCpus=1)) for _ in range(3)]
        for run in runs[:2]:
            await pool.startd.report(run, "running", started_at=5.0)
            await pool.startd.report(run, "running", usage=Usage(user_cpu_s=3661.0, bytes_sent=7))
        for number, (action, why) in enumerate([("hold", "enough"), ("remove", "gone"), ("hold", "early")], 1):
            assert await pool.act(action, f"{number}.0", reason=why) == {f"{number}.0": "done"}
        for run in runs:
            await pool.startd.finish(run, exit=JobExit(reason="killed"))

        def read(cluster):
            with JobEventLog(str(log)) as events:
                return [one for one in events.events(stop_after=0) if one.cluster == cluster and one.type != 6]

        kinds = JobEventType
        began, left = [kinds.SUBMIT, kinds.EXECUTE], kinds.JOB_EVICTED
        ways = [[*began, left, kinds.JOB_HELD], [*began, left, kinds.JOB_ABORTED], [kinds.SUBMIT, kinds.JOB_HELD]]
        await eventually(lambda: [[one.type for one in read(n)] for n in (1, 2, 3)] == ways, what="all events")
        for number, why in ((1, "enough"), (2, "gone")):
            evicted, last = read(number)[2:]
            assert "Reason" not in evicted
            assert why in last["HoldReason" if number == 1 else "Reason"]
            assert (evicted["Checkpointed"], evicted["TerminatedAndRequeued"]) == (False, False)
            assert (evicted["RunRemoteUsage"], evicted["SentBytes"]) == ("Usr 0 01:01:01, Sys 0 00:00:00", 7.0)
            assert (evicted["RequestCpus"], evicted["Cpus"]) == (1, 1)


async def test_what_a_job_wants_told_besides_is_not_told_of_its_machines_error(tmp_path):
    """After every other event, as HTCondor 23.9.6's logs have it."""
    log = tmp_path / "log"
    async with Pool(tmp_path / "pool") as pool:
        run = await pool.run_one(ad=job_ad(UserLog=str(log), JobAdInformationAttrs="JobPrio"))
        await pool.startd.finish(run, exit=JobExit(reason="hold", message="no such file", hold_code=13))
        await eventually(lambda: "012 (" in log.read_text() and log.read_text().endswith("...\n"), what="the hold")
        kinds = re.findall(r"^(\d{3}) \(", log.read_text(), re.M)
    assert kinds == ["000", "028", "021", "004", "028", "012", "028"]

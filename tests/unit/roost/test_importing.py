"""Logs of ClassAds as HTCondor writes them, and what is taken from them."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.importing.accounts import read_accounts
from roost.importing.classad_log import LONGEST_LINE, lines_of, read_log
from roost.importing.queue import files_of, read_queue, spool_folder, spooled_executable
from roost.submit.effects import TABLE
from shared.config.errors import ConfigError
from tests.spec import spec

#: As HTCondor 23 and 24 write it: blanks after 105 and 106, types left empty or not there at all.
ACCOUNTS = """\
107 1 CreationTimestamp 1700000000
101 Customer.alice@dom * (empty)
103 Customer.alice@dom Priority 10.000000
103 Customer.alice@dom PriorityFactor 500.000000
103 Customer.alice@dom AccumulatedUsage 7200.0
103 Customer.alice@dom WeightedAccumulatedUsage 14400.5
103 Customer.alice@dom UnchargedTime 100.0
103 Customer.alice@dom WeightedUnchargedTime -20.0
103 Customer.alice@dom BeginUsageTime 1690000000
103 Customer.alice@dom LastUsageTime 1699990000
103 Customer.alice@dom Ceiling 5
103 Customer.alice@dom Floor 1
103 Customer.alice@dom TempAttr "x"
104 Customer.alice@dom TempAttr
101 Customer.group_physics * *
103 Customer.group_physics Priority 0.5
103 Customer.group_physics PriorityFactor 0.0
101 Resource.slot1@1.2.3.4 * (empty)
103 Resource.slot1@1.2.3.4 RemoteUser "alice@dom"
101 Accountant. * (empty)
103 Accountant. LastUpdateTime 1700000123
105{blank}
101 Customer.bob@dom
103 Customer.bob@dom Priority 3.0
101 Customer.gone@dom
106{blank}
102 Customer.gone@dom
105
103 Customer.bob@dom Priority 99.0
""".format(blank=" ")


def logged(text, file="A.log"):
    data = text.encode() if isinstance(text, str) else text
    return read_log(lines_of(io.BytesIO(data)), file)


def refused(text, reading=logged):
    with pytest.raises(ConfigError) as caught:
        reading(text)
    return str(caught.value)


def accounts(text):
    return read_accounts(logged(text), "A.log")


@spec("ACC-23")
def test_what_was_committed_counts():
    log = logged(ACCOUNTS)
    assert set(log.ads) == {
        *("Customer.alice@dom", "Customer.group_physics", "Customer.bob@dom"),
        *("Resource.slot1@1.2.3.4", "Accountant."),
    }
    assert "tempattr" not in log.ads["Customer.alice@dom"].values
    assert log.ads["Customer.bob@dom"].values["priority"].text == "3.0"
    assert [str(one) for one in log.warnings] == [
        "A.log, line 28: this transaction was never committed and does not count, as in HTCondor"
    ]


@spec("ACC-23")
def test_records_of_the_accountant_are_read_whole():
    found = accounts(ACCOUNTS)
    assert found.until == 1700000123
    assert set(found.records) == {"alice@dom", "group_physics", "bob@dom"}
    alice = found.records["alice@dom"]
    assert (alice.priority, alice.factor, alice.floor, alice.ceiling) == (10.0, 500.0, 1.0, 5.0)
    assert (alice.usage, alice.weighted_usage) == (7300.0, 14400.5)
    assert (alice.begin, alice.last) == (1690000000.0, 1699990000.0)
    assert found.records["group_physics"].factor == 0.0  # the configuration's
    assert found.records["bob@dom"].ceiling == -1.0
    assert found.lines["bob@dom"] == 23


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "A.log: there is no record of a user (Customer.NAME) in it (name the Accountantnew.log in the SPOOL"),
        ("PRIORITY_HALFLIFE = 5\n", "A.log, line 1: 'PRIORITY_HALFLIFE = 5' is no record of a log of ClassAds"),
        ("\x7fELF\x02\x01\n", "A.log, line 1: '\\x7fELF\\x02\\x01' is no record"),
        (
            "107 1 x 1\n101 Customer.a@b\nZMG a\n103 Customer.a@b Priority 2.0\n",
            "A.log, line 3: 'ZMG a' is no record of a log of ClassAds (lines that count follow",
        ),
        ("101 Customer.a@b\n105\n103 Customer.a@b\n106\n", "A.log, line 3: record 103 lacks something"),
        ("101 Customer.a@b\n105\n105\n106\n", "A.log, line 3: a transaction begins inside the one of line 2"),
        ('101 Customer.a@b\n103 Customer.a@b Priority "\0"\n106\n', "A.log, line 2: a zero byte"),
        ("101 " + "x" * (LONGEST_LINE + 1) + "\n", f"A.log, line 1: a line of more than {LONGEST_LINE} bytes"),
        ("101 Customer.a@b\n103 Customer.a@b Priority fast\n", "A.log, line 2: Customer.a@b: Priority is 'fast'"),
        ("101 Customer.a@b\n103 Customer.a@b Priority 0.1\n", "A.log, line 2: Customer.a@b: priority 0.1 is below 0.5"),
        (
            "101 Customer.a@b\n103 Customer.a@b Priority 1e400\n",
            "line 2: Customer.a@b: priority inf is too large",
        ),
        (
            "101 Customer.a@b\n103 Customer.a@b WeightedAccumulatedUsage -5.0\n",
            "a@b: weighted usage -5",
        ),
        ("101 Customer.a\x01@b\n", "Customer.a\x01@b: 'a\\x01@b' is no name of a submitter"),
        ("101 Customer.\n103 Customer. Priority 2.0\n", "A.log, line 1: Customer.: '' is no name of a submitter"),
    ],
)
@spec("ACC-23")
def test_a_broken_file_is_refused_with_line_and_mend(text, told):
    assert told in refused(text, accounts)


@spec("ACC-23")
def test_every_wrong_line_is_told_at_once():
    told = refused("101 Customer.a@b\n103 Customer.a@b Priority x\n103 Customer.a@b Floor -1\n", accounts)
    assert len(told.splitlines()) == 2


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("103 Customer.a@b Prio", "the last line has no end and does not count"),
        ("105\n103 Customer.a@b Priority 9.0\n", "this transaction was never committed"),
        (
            "105\n103 Customer.a@b Priority 9.0\n\0\0\0\0\n",
            "is no record of a log of ClassAds: it and what",
        ),
        ("103 Customer.x@y Priority 2.0\n", "there is no ad Customer.x@y here"),
    ],
)
def test_what_a_machine_left_half_written_does_not_count(end, told):
    log = logged("101 Customer.a@b\n103 Customer.a@b Priority 7.0\n" + end)
    assert log.ads["Customer.a@b"].values["priority"].text == "7.0"
    assert told in str(log.warnings[0])


@settings(max_examples=300)
@given(st.binary(max_size=400), st.integers(0, len(ACCOUNTS)))
def test_any_bytes_are_read_or_refused(data, place):
    for text in (data, ACCOUNTS.encode()[:place] + data + ACCOUNTS.encode()[place:]):
        told = "A.log"
        try:
            read_accounts(logged(text), "A.log")
        except ConfigError as error:
            told = str(error)
        assert "A.log" in told


# --- the queue

#: As HTCondor 24 and 25 write it.
QUEUE = """\
107 1 CreationTimestamp 1784733861
101 0.0 Job Machine
105
103 0.0 UidDomain "dom"
106
103 0.0 NextClusterNum 9
101 0.1 Owner (empty)
103 0.1 User "alice@dom"
101 03.-1 Job Machine
101 3.-2 ClusterPvt (empty)
101 3.0 Job Machine
103 3.0 ProcId 0
103 3.0 JobStatus 1
103 3.0 GlobalJobId "ap@dom#3.0#1700000000"
101 3.1 Job Machine
103 3.1 JobStatus 2
103 3.1 RemoteHost "slot1@node"
103 3.1 NumJobStarts 4
103 3.1 PublicClaimId "<1.2.3.4>"
101 3.2 Job Machine
103 3.2 JobStatus 4
101 3.3 Job Machine
103 3.3 JobStatus 3
101 3.7 Job Machine
103 3.7 JobStatus 5
103 3.7 HoldReason "out of memory"
103 3.7 HoldReasonCode 34
103 3.7 HoldReasonSubCode 102
103 3.7 JobPrio 12
103 03.-1 QDate 1700000000
103 03.-1 JobUniverse 5
103 03.-1 Owner "alice"
103 03.-1 Cmd "/bin/sleep"
103 03.-1 Requirements (TARGET.Arch == "X86_64") && \
(TARGET.Memory >= RequestMemory)
101 05.-1 Job Machine
103 05.-1 JobUniverse 7
103 05.-1 User "bob@dom"
101 5.0 Job Machine
103 5.0 JobStatus 1
""".replace(" \\\n", " ")


def queue(text):
    return read_queue(logged(text, "Q.log"), "Q.log")


@spec("TLS-19")
def test_idle_held_and_running_jobs_come_over():
    found = queue(QUEUE)
    (cluster,) = found.clusters
    assert (cluster.number, cluster.user, cluster.origin) == (3, "alice@dom", "ap@dom#3#1700000000")
    assert cluster.ad.eval("Cmd") == "/bin/sleep"
    assert cluster.ad.text("Requirements") == '(TARGET.Arch == "X86_64") && (TARGET.Memory >= RequestMemory)'
    assert {job.proc: job.ad["JobStatus"] for job in cluster.jobs} == {0: 1, 1: 1, 7: 5}
    ran, held = cluster.jobs[1].ad, cluster.jobs[2].ad
    assert ran["NumJobStarts"] == 4
    assert "PublicClaimId" not in ran
    assert (held["HoldReason"], held["HoldReasonCode"], held["HoldReasonSubCode"]) == ("out of memory", 34, 102)
    assert held["JobPrio"] == 12
    assert dict(found.left) == {"completed": 1, "removed": 1, "of universe 7, which is not run here": 1}
    assert [str(one) for one in found.warnings] == [
        "Q.log, line 35: jobs of universe 7 are not run here and are left out: cluster 5 (let them end in HTCondor, or "
        "submit them anew as vanilla jobs)"
    ]


@spec("TLS-19")
def test_what_an_attribute_asks_in_vain_is_told_as_by_submit():
    """The table of the submit language says what; those that it refuses come on hold."""
    refused = next(name for name, row in TABLE.items() if row.refused)
    told = next(name for name, row in TABLE.items() if not row.refused)
    found = queue(QUEUE + f'103 3.1 {refused} "x"\n103 03.-1 {told} "x"\n')
    warnings = "\n".join(map(str, found.warnings))
    assert f"line 40: {TABLE[refused].command} ({refused}) has no effect here, so they come on hold" in warnings
    assert f"line 41: {TABLE[told].command} ({told}) has no effect here: {TABLE[told].told}; cluster 3" in warnings
    first, second, third = (job.ad for job in found.clusters[0].jobs)
    assert (first["JobStatus"], second["JobStatus"]) == (1, 5)
    assert TABLE[refused].told in second["HoldReason"]
    assert third["HoldReason"] == "out of memory"


SPOOLED = """\
101 04.-1 Job Machine
103 04.-1 User "root@dom"
103 04.-1 JobUniverse 5
103 04.-1 Cmd "/spool/4/cluster4.ickpt.subproc0"
101 4.0 Job Machine
103 4.0 JobStatus 1
103 4.0 Iwd "/spool/4/0/cluster4.proc0.subproc0"
103 4.0 SUBMIT_Iwd "/home/alice"
103 4.0 Out "out.txt"
103 4.0 SUBMIT_Out "results/out.txt"
103 4.0 TransferInput "a.dat"
103 4.0 SUBMIT_TransferInput "data/a.dat"
103 4.0 StageInFinish 1700000000
"""


@spec("TLS-19")
def test_spooled_jobs_are_as_their_users_had_them(tmp_path):
    (cluster,) = queue(SPOOLED).clusters
    (job,) = cluster.jobs
    assert job.spooled
    assert (job.ad["Iwd"], job.ad["Out"], job.ad["TransferInput"]) == ("/home/alice", "results/out.txt", "data/a.dat")
    assert not [name for name in job.ad if name.startswith(("SUBMIT_", "StageIn"))]
    with pytest.raises(ValueError, match="-spool"):
        files_of(cluster, job, tmp_path)
    folder = spool_folder(tmp_path, 4, 0)
    folder.mkdir(parents=True)
    for name in ("a.dat", "out.txt", "more.dat"):
        (folder / name).write_text(name)
    spooled_executable(tmp_path, 4).write_text("#!/bin/sh\n")
    sources = {source.name: source.path for source in files_of(cluster, job, tmp_path)}
    assert sources == {
        "a.dat": folder / "a.dat",
        "more.dat": folder / "more.dat",
        "condor_exec.exe": spooled_executable(tmp_path, 4),
    }


@spec("TLS-19")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("101 soon Job Machine\n", "Q.log, line 40: 'soon' is no job (is this a job_queue.log?"),
        ("101 9.0 Job Machine\n", "Q.log, line 40: 9.0: JobStatus is nothing (want 1 (idle) to 7 (suspended))"),
        ('103 3.0 JobStatus "idle"\n', 'Q.log, line 40: 3.0: JobStatus is "idle"'),
        ("103 3.0 JobStatus 12\n", "Q.log, line 40: 3.0: JobStatus is 12"),
        ("103 3.1 Rank ((1\n", "Q.log, line 40: 3.1: Rank: "),
        ("104 03.-1 Owner\n104 0.0 UidDomain\n", "Q.log, line 9: cluster 3 says neither User nor Owner with a domain"),
    ],
)
def test_a_broken_queue_is_refused_with_line_and_mend(change, told):
    assert told in refused(QUEUE + change, queue)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("101 3.-7 Job Machine\n", "line 40: 3.-7 is no job that is known here: it is left out"),
        (
            "103 03.-1 JobMaterializeLimit 5\n103 03.-1 JobMaterializeNextProcId 8\n103 03.-1 TotalSubmitProcs 99\n"
            '103 03.-1 JobMaterializeDigestFile "/s/3.digest"\n',
            "cluster 3 has jobs that are not materialized yet, from 3.8 on: these are left out (submit the rest anew, "
            "as /s/3.digest has it)",
        ),
        (
            "103 3.2 StageInFinish 1\n103 3.2 LeaveJobInQueue true\n",
            "line 20: 3.2 is completed and its output waits in HTCondor's spool (fetch it with condor_transfer_data",
        ),
        (
            "103 3.7 HoldReasonCode 16\n",
            "line 24: 3.7: its input was never sent whole: it is left out (submit it",
        ),
    ],
)
@spec("TLS-19")
def test_what_stays_behind_is_told(change, told):
    assert told in "\n".join(map(str, queue(QUEUE + change).warnings))


@settings(max_examples=300)
@given(st.binary(max_size=400), st.integers(0, len(QUEUE)))
def test_any_bytes_are_a_queue_or_refused(data, place):
    told = "Q.log"
    try:
        queue(QUEUE.encode()[:place] + data + QUEUE.encode()[place:])
    except ConfigError as error:
        told = str(error)
    assert "Q.log" in told

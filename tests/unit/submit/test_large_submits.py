"""A submit of many jobs keeps little of each, and sends them some at a time."""

from itertools import count
from pathlib import Path

import msgpack

from roost import protocol
from roost.submit import Description, SubmitContext
from roost.submit.procs import PIECE, Procs
from shared.classad import ClassAd

PLACE = SubmitContext(Path("/tmp"), "job.sub", "alice", {}, "example.org")


def test_jobs_that_wait_packed_are_read_as_they_came():
    procs = Procs()
    number = 2 * PIECE + 5
    for proc in range(number):
        own = {"Args": f"-n {proc}", "Big": 2**40 + proc} if proc % 2 else {"Args": "é\n", "Rank": 0.5}
        procs.append({"ProcId": proc, "JobStatus": 1, **own})
    assert len(procs) == number
    assert [proc["ProcId"] for proc in procs] == list(range(number))
    own = {"Args": f"-n {PIECE + 1}", "Big": 2**40 + PIECE + 1}
    assert procs[PIECE + 1] == {"ProcId": PIECE + 1, "JobStatus": 1, **own}
    assert procs[-1]["ProcId"] == number - 1
    assert [proc["ProcId"] for proc in procs[PIECE - 1 : PIECE + 1]] == [PIECE - 1, PIECE]
    assert procs.names == {"ProcId", "JobStatus", "Args", "Big", "Rank"}
    sent = list(procs.ads())
    assert len(sent) == number
    for proc in (0, 1, PIECE, PIECE + 1, number - 1):
        expected = {name: value for name, value in procs[proc].items() if name not in ("ProcId", "JobStatus")}
        assert sent[proc] == ClassAd(expected)


def test_what_is_sent_of_many_jobs_is_what_is_sent_of_few():
    text = "executable = /bin/true\narguments = $(Process)\n+Half = $(Process) / 2\nqueue "
    (many,) = Description(f"{text}{PIECE + 2}\n", PLACE, now=1e9).clusters()
    (few,) = Description(f"{text}2\n", PLACE, now=1e9).clusters()
    assert [str(ad) for ad in few.jobs()] == [str(ad) for ad in many.jobs()][:2]
    assert not any("JobStatus" in ad for ad in many.jobs())  # the cluster's ad has it
    assert many.ad.eval("JobStatus") == 1


def test_jobs_are_asked_for_when_they_are_sent():
    drawn = count()
    jobs = (ClassAd({"Args": str(next(drawn))}) for _ in range(4 * protocol.PART))
    plan = protocol.submit(ClassAd(), jobs, False, "ap")
    call = next(plan)
    assert len(msgpack.unpackb(call.body)["procs"]) == protocol.PART
    assert next(drawn) <= 2 * protocol.PART + 1


def test_a_part_is_no_larger_than_a_message_may_be():
    large = ClassAd({"Args": "x" * (1 << 20)})
    plan = protocol.submit(ClassAd(), [large] * 20, False, "ap")
    call, sizes, more = next(plan), [], True
    try:
        while more:
            body = msgpack.unpackb(call.body)
            sizes.append(len(body["procs"]))
            assert len(call.body) < protocol.PART_BYTES + (2 << 20)
            call = plan.send({"cluster": 3, "schedd": "ap"})
    except StopIteration as done:
        queued = done.value
    assert (sum(sizes), len(sizes), queued.count) == (20, 3, 20)

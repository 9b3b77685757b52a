"""What a job's ad tells of its files' way, and of the slots that it was matched with."""

from engine.queue.jobs import Shadow
from services.schedd.core import job_end, transfer_times
from shared.classad import UNDEFINED
from shared.transfer.progress import Standing
from tests.unit.schedd.test_decisions import cluster_of, job_of
from tests.unit.schedd.test_job_end import claim_of


def told(job, *names):
    return [job.ad.eval(name) for name in names]


def test_input_waits_goes_and_is_there():
    job = job_of(cluster_of(""))
    transfer_times.queued(job, "Input", 100.9)
    assert told(job, "TransferInQueued", "TransferQueued", "TransferringInput") == [100, True, UNDEFINED]
    transfer_times.queued(job, "Input", 120.0)  # it asks again, and has its place
    transfer_times.started(job, "Input", 130.0)
    assert told(job, "TransferInQueued", "TransferInStarted", "JobCurrentStartTransferInputDate") == [100, 130, 130]
    assert told(job, "TransferQueued", "TransferringInput") == [False, True]
    transfer_times.ended(job, "Input", 137.5, arrived=True)
    assert told(job, "TransferInFinished", "JobCurrentFinishTransferInputDate", "TransferringInput") == [
        137,
        137,
        False,
    ]
    transfer_times.queued(job, "Output", 200.0)
    transfer_times.started(job, "Output", 200.0)
    transfer_times.ended(job, "Output", 203.0, arrived=True)
    assert told(job, "TransferOutStarted", "JobCurrentFinishTransferOutputDate") == [200, 203]
    assert job.ad.eval("CumulativeTransferTime") == 7 + 3


def test_what_breaks_off_is_not_finished_and_its_time_counts_all_the_same():
    job = job_of(cluster_of(""))
    transfer_times.queued(job, "Output", 10.0)
    transfer_times.ended(job, "Output", 30.0, arrived=False)  # others went first all the time
    assert told(job, "TransferQueued", "CumulativeTransferTime", "TransferOutStarted") == [False, UNDEFINED, UNDEFINED]
    transfer_times.queued(job, "Output", 31.0)
    transfer_times.started(job, "Output", 40.0)
    transfer_times.ended(job, "Output", 45.0, arrived=False)
    assert told(job, "TransferOutQueued", "CumulativeTransferTime", "TransferOutFinished") == [10, 5, UNDEFINED]


def test_the_next_run_begins_with_nothing():
    job = job_of(cluster_of(""))
    transfer_times.queued(job, "Input", 1.0)
    transfer_times.started(job, "Input", 2.0)
    transfer_times.ended(job, "Input", 5.0, arrived=True)
    job_end.on_start(job.ad, job.autocluster, claim_of("SlotID = 1"), 100.0)
    assert not [name for name in job.ad if name.startswith(("TransferIn", "TransferOut", "Transferring"))]
    assert "JobCurrentStartTransferInputDate" not in job.ad
    assert job.ad.eval("CumulativeTransferTime") == 3


def test_a_job_remembers_as_many_slots_as_it_wants():
    job = job_of(cluster_of("LastMatchListLength = 2"))
    for number, slot in enumerate(("slot1@a", "slot1@b", "slot1@c")):
        job_end.on_matched(job, slot, 100.0 + number)
    assert told(job, "LastMatchName0", "LastMatchName1", "LastMatchName2") == ["slot1@c", "slot1@b", UNDEFINED]
    assert told(job, "FirstJobMatchDate", "LastMatchTime", "NumJobMatches") == [100, 102, 3]
    other = job_of(cluster_of(""))
    job_end.on_matched(other, "slot1@a", 100.0)
    assert "LastMatchName0" not in other.ad


def test_how_far_files_are_is_told_while_they_travel():
    job = job_of(cluster_of(""))
    names = [f"TransferInput{what}" for what in ("BytesDone", "BytesTotal", "BytesPerSecond")]
    transfer_times.started(job, "Input", 10.0)
    transfer_times.stands(job, "Input", Standing(5, 0, 2, notable=False))
    assert told(job, *names) == [5, UNDEFINED, 2]  # nobody knows how many there are
    transfer_times.stands(job, "Input", Standing(7, 9, 0, notable=False))
    assert told(job, *names) == [7, 9, 0]
    transfer_times.ended(job, "Input", 20.0, arrived=True)
    assert told(job, *names, "TransferringInput") == [UNDEFINED, UNDEFINED, UNDEFINED, False]


def test_a_run_that_is_over_transfers_nothing():
    cluster = cluster_of("")
    job, claim = job_of(cluster), claim_of("SlotID = 1")
    transfer_times.stands(job, "Output", Standing(5, 6, 2, notable=False))
    run = Shadow(job=job.id, attempt=1, token="", transfer=True, started=1.0, claim=claim.id)
    job_end.on_run_end(job, claim, run, job_end.Ended(9.0, 8.0, 7.0))
    assert told(job, "TransferringOutput", "TransferOutputBytesDone") == [False, UNDEFINED]

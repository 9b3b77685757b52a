"""Ads as documents, histories as files, checkpoints (MON-18, MON-19)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.adstash.core import documents
from services.adstash.core.checkpoint import BadCheckpoint, Checkpoint, SourceCheckpoint
from services.adstash.core.documents import AD_FILE, SCHEDD_HISTORY, STARTD_HISTORY, document, records
from shared.classad import ClassAd, parse_ad, unparse_old
from shared.classad.expr import fold
from tests.spec import spec

JOB = {
    "GlobalJobId": "ap#12.0#1700000000", "ClusterId": 12, "ProcId": 0, "Owner": "ann", "JobStatus": 4, "ExitCode": 0,
    "CompletionDate": 1700000500, "EnteredCurrentStatus": 1700000500, "RemoteWallClockTime": 12.5,
}  # fmt: skip


def made(more, source=SCHEDD_HISTORY):
    ad = ClassAd(JOB)
    for name, text in more.items():
        ad.set_text(name, text)
    return document(ad, source, "ap")


@spec("MON-18")
def test_known_attributes_have_types_and_others_are_keywords():
    found = made(
        {
            "exitcode": "3", "QDate": "1700000000", "ExitBySignal": "false", "RemoteUserCpu": "3", "MyFloat": "2.5",
            "MyFlag": "true", "MyText": '"x"', "MyList": "{1, 2}", "JobStartDate": "0",
        }
    ).fields  # fmt: skip
    assert (found["ExitCode"], found["QDate"], found["ExitBySignal"]) == (3, 1700000000, False)
    assert (found["RemoteUserCpu"], type(found["RemoteUserCpu"])) == (3.0, float)
    assert (found["MyFloat"], found["MyFlag"], found["MyText"]) == ("2.5", "true", "x")
    assert found["MyList"] == "{ 1,2 }"
    assert not any(name.startswith("JobStartDate") for name in found)  # 0: it has not happened
    assert (found["RecordTime"], found["Source"], found["ScheddName"]) == (1700000500, "schedd_history", "ap")


@spec("MON-18")
def test_the_index_is_told_of_every_type():
    mappings = documents.mappings()
    properties = mappings["properties"]
    assert properties["ExitCode"] == {"type": "long"}
    assert properties["QDate"] == {"type": "date", "format": "epoch_second"}
    assert properties["Owner"]["type"] == "keyword"
    assert properties["ExitBySignal"] == {"type": "boolean"}
    others = mappings["dynamic_templates"][0]["others"]
    assert (others["match_mapping_type"], others["mapping"]["type"]) == ("string", "keyword")
    names = [fold(name) for words in documents._WORDS.values() for name in words.split()]
    assert len(names) == len(set(names))  # each attribute has one type


def test_values_that_do_not_fit_their_field_are_kept_beside_it():
    found = made(
        {
            "ExitCode": '"none"', "QDate": "true", "ImageSize": "1.0e300", "RequestMemory": "TARGET.Memory / 2",
            "PeriodicHold": "NumJobStarts > 3", "Requirements": "TARGET.Cpus > 1", "Note": "undefined",
        }
    ).fields  # fmt: skip
    assert "ExitCode" not in found
    assert found["ExitCode_STRING"] == "none"
    assert found["RequestMemory_STRING"] == "TARGET.Memory / 2"
    assert found["PeriodicHold_STRING"] == "NumJobStarts > 3"
    assert found["Requirements"] == "TARGET.Cpus > 1"
    assert "ImageSize_STRING" in found
    assert "Note" not in found


def test_secrets_are_not_exported():
    found = made({"Environment": '"PASSWORD=x"', "Env": '"A=b"', "ClaimId": '"secret"', "_Condor_Priv": '"x"'}).fields
    assert not {"Environment", "Env", "ClaimId"} & found.keys()
    assert "PASSWORD" not in json.dumps(found)


@spec("MON-19")
def test_ids_follow_from_the_job_and_the_source():
    assert made({}).id == made({"Note": '"other"'}).id == "ap#12.0#1700000000#1700000500"
    run = {"JobCurrentStartDate": "1700000100"}
    assert made(run, STARTD_HISTORY).id != made({"JobCurrentStartDate": "1700000200"}, STARTD_HISTORY).id
    assert made(run, STARTD_HISTORY).id == made(run, STARTD_HISTORY).id
    assert made({}, AD_FILE).id != made({"Note": '"other"'}, AD_FILE).id
    nameless = document(ClassAd({"A": 1}), SCHEDD_HISTORY, "ap")
    assert nameless.id != document(ClassAd({"A": 2}), SCHEDD_HISTORY, "ap").id


def test_long_and_odd_attributes_make_documents_that_a_server_takes():
    ad = parse_ad("[ 'dotted.name' = \"a\"; '_id' = 5 ]")
    ad.update(JOB | {"Long": "x" * 1_000_000})
    found = document(ad, SCHEDD_HISTORY, "ap")
    assert len(found.fields["Long"]) == 100_000
    assert found.fields["dotted_name"] == "a"
    assert found.fields["attr_id"] == "5"  # what begins with _ is the server's
    bare = found.bare()
    assert "Long" not in bare.fields
    assert bare.fields["Owner"] == "ann"
    assert bare.id == found.id


VALUES = st.one_of(
    st.text(max_size=20), st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans(), st.just("\udcff\udc80")
)


@spec("MON-18")
@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.sampled_from(["Own", *sorted(name for name, _ in documents.KNOWN.values())]), VALUES))
def test_every_document_is_json_of_the_types_of_its_fields(attributes):
    """One field of another type, and the server refuses the whole document."""
    attributes = {
        name: value.replace("\0", "") if isinstance(value, str) else value for name, value in attributes.items()
    }
    ad = ClassAd()
    for name, value in attributes.items():
        try:
            ad[name] = value
        except ValueError:
            continue
    found = document(ad, SCHEDD_HISTORY, "ap").fields
    json.dumps(found, allow_nan=False).encode()
    kinds = {"long": int, "date": int, "double": float, "boolean": bool}
    for name, value in found.items():
        wanted = kinds.get(documents.KNOWN.get(fold(name), ("", "keyword"))[1], str)
        assert type(value) is wanted, name


def history(*ads, banner="*** Offset = 0 ClusterId = 1"):
    return b"".join(f"{unparse_old(ad).rstrip()}\n{banner}\n".encode() for ad in ads)


@spec("MON-19")
def test_records_of_a_history_file():
    """What is still being written waits, what can not be read is passed over, epochs are told apart."""
    whole = history(ClassAd(JOB), ClassAd({"ClusterId": 13}))
    data = whole + b"ClusterId = 14\n"
    found = list(records(data, "x"))
    assert [record.ad["ClusterId"] for record in found] == [12, 13]
    assert found[-1].end == len(whole)
    assert list(records(b"A = 1", "x")) == []
    broken = list(records(b"A = = 1\n*** x\nB = 2\n***\n\n***\n", "x"))
    assert [record.ad is None for record in broken] == [True, False]
    (odd,) = records('A = "one\u2028two\x0c\x85three"\n*** x\n'.encode(), "x")  # none of these ends a line
    assert odd.ad["A"] == "one\u2028two\x0c\x85three"
    (epoch,) = records(history(ClassAd(JOB), banner="*** EPOCH ClusterId=12 ProcId=0"), "x")
    assert epoch.source == "job_epoch"


def test_checkpoints_are_read_as_they_were_written():
    marks = Checkpoint({"schedd-ap": SourceCheckpoint("ap#1", {}, 3), "file-/x": SourceCheckpoint("", {"1-2": 77}, 1)})
    assert Checkpoint.parse(marks.text()) == marks
    for bad in ("", "[]", "{}", '{"version": 2, "sources": {}}', '{"version": 1, "sources": {"a": {}}}',
                '{"version": 1, "sources": {"a": {"newest": "", "passes": 0, "offsets": {"1": -1}}}}'):  # fmt: skip
        with pytest.raises(BadCheckpoint):
            Checkpoint.parse(bad)

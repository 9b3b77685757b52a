"""The envelope: what goes in comes out, and bytes that are no message of ours are told so."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.messages import BadMessage, Envelope, Failure, catalogue, new_id
from shared.messages.base import message
from shared.messages.claims import Activation, JobExit, JobReport, RequestClaim
from shared.messages.wire import type_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(-9, 9), inner, max_size=4),
    max_leaves=12,
)


def test_nested_message_comes_out_as_it_went_in():
    activation = Activation(job_id="1.0", attempt=2, job_ad=b"\x00\xff", transfer_token="t")
    body = RequestClaim(
        request_id="r",
        claim_id="c",
        slot="slot1@n",
        schedd="a",
        submitter="u",
        job_ad=b"ad",
        lease_s=1200,
        alive_interval_s=300,
        epoch=3,
        activation=activation,
    )
    envelope = Envelope(body, "schedd.a", "0" * 32, 12.5, 3, "00-aa-bb-01")
    assert Envelope.unpack(envelope.pack()) == envelope


def test_optional_parts_stay_apart():
    report = JobReport(
        startd="n",
        slot="slot1@n",
        claim_id="c",
        job_id="1.0",
        attempt=1,
        sequence=9,
        phase="ended",
        at=1.5,
        exit=JobExit(reason="exited", exit_code=0),
    )
    back = Envelope.unpack(Envelope(report).pack()).body
    assert back == report
    assert back.exit.exit_signal is None


@given(st.binary(max_size=200))
def test_garbage_is_a_bad_message_and_nothing_else(data):
    with pytest.raises(BadMessage):
        Envelope.unpack(data)


def unpacked_or_complaint(raw):
    try:
        return Envelope.unpack(msgpack.packb(raw)), ""
    except BadMessage as error:
        return None, str(error)


@given(st.dictionaries(st.sampled_from(["v", "type", "tv", "id", "ts", "sender", "epoch", "trace", "body"]), VALUES))
def test_any_envelope_of_wrong_parts_is_a_bad_message_or_a_message(raw):
    envelope, complaint = unpacked_or_complaint({"v": 1, **raw})
    assert envelope is not None or 0 < len(complaint) < 1000


@given(st.sampled_from(sorted(catalogue())), st.dictionaries(st.text(max_size=12), VALUES, max_size=6))
def test_any_body_is_a_bad_message_or_a_message(key, body):
    name, version = key
    envelope, complaint = unpacked_or_complaint({"v": 1, "type": name, "tv": version, "id": "x", "body": body})
    assert complaint.startswith(name) if envelope is None else envelope.body.type == name


@given(st.binary(max_size=100) | VALUES.map(msgpack.packb))
def test_type_can_be_asked_of_anything(data):
    assert isinstance(type_of(data), str)


def test_bad_field_is_named():
    raw = {"v": 1, "type": "failure", "tv": 1, "id": "x", "body": {"code": "denied", "reason": 5}}
    with pytest.raises(BadMessage, match="failure: reason: Input should be a valid string"):
        Envelope.unpack(msgpack.packb(raw))


@pytest.mark.parametrize("epoch", ["1", "9" * 40, 1.5, True, None])
def test_a_number_is_a_number(epoch):
    """Written as a text it could have more than 64 bits, and spoil what is written down of it."""
    body = {"negotiator": "n", "cycle": 1, "submitters": []}
    raw = {"v": 1, "type": "negotiation.get-requests", "tv": 1, "id": "x", "body": body | {"epoch": epoch}}
    with pytest.raises(BadMessage, match="epoch: Input should be a valid integer"):
        Envelope.unpack(msgpack.packb(raw))


def test_type_and_version_are_taken_once():
    with pytest.raises(TypeError, match="'failure' version 1"):
        message(Failure)


def test_ids_are_ordered_by_time_and_unique():
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert [name[:12] for name in ids] == sorted(name[:12] for name in ids)
    assert {(name[12], name[16] in "89ab") for name in ids} == {("7", True)}


@pytest.mark.parametrize("held", [[[]], [[0]], [[0, 1, 2]], [["0", 1]], [7]])
def test_a_range_of_jobs_has_two_ends(held):
    body = {"at": 1.0, "schedd": "ap", "owner": "a@b", "submitter": "a@b", "cluster": 1, "first_proc": 0, "count": 1}
    head = {"v": 1, "type": "job.submitted", "tv": 1, "id": "0" * 32, "sender": "schedd.ap"}
    assert Envelope.unpack(msgpack.packb({**head, "body": {**body, "held": [[0, 0]]}})).body.held == [[0, 0]]
    with pytest.raises(BadMessage, match=r"job.submitted: held.0"):
        Envelope.unpack(msgpack.packb({**head, "body": {**body, "held": held}}))

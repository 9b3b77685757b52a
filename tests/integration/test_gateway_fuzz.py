"""Requests made up from the description of the gateway: no answer is a 5xx, and errors have one shape."""

import msgpack
import pytest
from hypothesis import HealthCheck, core, given, settings
from hypothesis.internal.conjecture import engine
from hypothesis.strategies._internal import collections

from tests.integration.inside import InsidePool

#: An answer without end; and what ends the gateway or those whom it asks, which test_tools.py tries.
UNTRIED = ("/v1/events", "/v1/daemons/restart", "/v1/daemons/off")


def packed(_context, value):
    return value if isinstance(value, bytes) else msgpack.packb(value, default=str)


def as_it_is(_context, value):
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    inside = InsidePool(tmp_path_factory.mktemp("pool"), ROOST_GATEWAY_RATE="0", ROOST_GATEWAY_SUBMIT_RATE="0")
    yield inside
    inside.close()


#: What schemathesis changes of hypothesis as it is imported, for the tests after it as well: how much an example may
#: draw, and how one that fails is told.
CHANGED = (
    *((module, "BUFFER_SIZE") for module in (core, engine, collections)),
    (core, "RepresentationPrinter"),
)


def test_no_made_up_request_breaks_it(pool, monkeypatch):
    for module, name in CHANGED:
        monkeypatch.setattr(module, name, getattr(module, name))  # to be put back
    import schemathesis  # half a second, for each worker if the module did it

    schemathesis.serializer("application/x-msgpack")(packed)
    schemathesis.serializer("application/x-tar")(as_it_is)
    description = schemathesis.openapi.from_url(f"{pool.url}/openapi.json")
    tried = 0
    for found in description.get_all_operations():
        operation = found.ok()
        if operation.path in UNTRIED:
            continue

        @given(case=operation.as_strategy())
        @settings(max_examples=3, database=None, suppress_health_check=list(HealthCheck))
        def ask(case):
            answer = case.call(headers={"Authorization": f"Bearer {pool.token}"}, timeout=60)
            # A daemon that a made-up name means may be away, and is told to be; everything else is an answer.
            fine = answer.status_code < 500 or (answer.status_code == 503 and answer.json()["error"]["retryable"])
            assert fine, f"{case.as_curl_command()}: {answer.text}"
            assert "x-request-id" in answer.headers, f"{case.as_curl_command()}: {answer.status_code} {answer.text}"
            if answer.status_code >= 400:
                assert set(answer.json()["error"]) == {"code", "message", "retryable"}

        ask()
        tried += 1
    assert tried >= 40

"""Both clients have one source."""

from tests.infrastructure.synchronous_client import SOURCE, TARGET, formatted, synchronous, wanted


def test_the_synchronous_client_is_made_of_the_asynchronous_one():
    assert TARGET.read_text() == wanted(), "run: python -m tests.infrastructure.synchronous_client --write"


def test_a_change_of_the_source_is_seen():
    changed = SOURCE.read_text().replace('"/v1/whoami"', '"/v1/who"')
    assert formatted(synchronous(changed)) != TARGET.read_text()

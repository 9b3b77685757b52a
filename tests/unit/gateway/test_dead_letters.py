"""What is shown of a dead letter."""

from services.gateway.routes.administration import _peek
from shared.compression import MAGIC
from shared.messages.ads import AdUpdate
from shared.messages.base import Envelope


def test_a_compressed_message_is_shown_as_any_other():
    body = AdUpdate(my_type="Machine", daemon="startd@n", start_time=1, sequence=1, names=["x"], ads=[b"\x80" * 9000])
    data = Envelope(body, "startd.n").pack()
    assert data.startswith(MAGIC)
    shown = _peek(data)
    assert (shown["daemon"], shown["ads"]) == ("startd@n", "<list>")


def test_garbage_is_shown_as_nothing():
    for data in (b"", b"\xff", MAGIC, MAGIC + b"x" * 50, b"\x90"):
        assert _peek(data) is None

"""Records one message of every type, which every later release must be able to read: tests/unit/messages/recorded.

    python -m tests.unit.messages.recorder

runs a personal pool with a few jobs and keeps what its daemons say; what they do not say then is made up from its
model, with every field set. What is recorded is never changed: only types and versions that are not there are added, to
the file of the present release. The events are also the examples of docs/events.md (shared/messages/examples.json).
"""

from __future__ import annotations

import base64
import json
import socket
import tempfile
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from shared.messages import Envelope, Message, catalogue
from shared.messages.events import Event
from shared.version import VERSION

FOLDER = Path(__file__).parent / "recorded"
EXAMPLES = Path(__file__).parents[3] / "shared" / "messages" / "examples.json"
#: A larger one tells no more.
MAX_BYTES = 20_000


@dataclass(frozen=True)
class Recorded:
    type: str
    version: int
    data: bytes  # the envelope as it travelled
    release: str


def recorded() -> list[Recorded]:
    """Everything in the folder, by release."""
    found = []
    for path in sorted(FOLDER.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            told = json.loads(line)
            found.append(Recorded(told["type"], told["version"], base64.b64decode(told["msgpack"]), path.stem))
    return found


def made_up(kind: type[Message]) -> Envelope:
    """A message with every field set."""
    return Envelope(kind.model_validate(_fields(kind)), "schedd.ap.example.org", f"{7:032x}", 1700000000.5, 3, None)


def _fields(kind: type[BaseModel]) -> dict[str, Any]:
    return {name: _value(info.annotation, name) for name, info in kind.model_fields.items()}


def _value(annotation: Any, name: str) -> Any:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _value(next(one for one in inner if one is not type(None)), name)
    if origin is typing.Literal:
        return inner[0]
    if origin is typing.Annotated:
        least = next((one.min_length for one in getattr(inner[1], "metadata", ()) if hasattr(one, "min_length")), 1)
        return _value(inner[0], name) * least
    if origin is list:
        return [_value(inner[0], name)]
    if origin is dict:
        return {_value(inner[0], "key"): _value(inner[1], name)}
    if origin is tuple:
        return tuple(_value(one, name) for one in inner if one is not Ellipsis)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation.model_validate(_fields(annotation))
    simple: dict[Any, Any] = {str: name, bytes: b"\x81\x00", bool: True, int: 7, float: 1.5}
    return simple.get(annotation, 7)


def from_a_pool() -> Iterator[bytes]:
    """What the daemons of a pool say while it runs some jobs."""
    from shared.classad import ClassAd
    from tests.integration.inside import InsidePool

    said: list[bytes] = []
    pack = Envelope.pack

    def spied(envelope: Envelope, *body: Any) -> bytes:
        data = pack(envelope, *body)
        said.append(data)
        return data

    Envelope.pack = spied  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory(prefix="roost-record-") as folder:
            pool = InsidePool(Path(folder), FULL_HOSTNAME="ap.example.org", SCHEDD_NAME="ap", STARTD_NAME="node1")
            try:
                with pool.client() as client:
                    _work(client, ClassAd({"Cmd": "/bin/true", "Iwd": "/tmp", "TransferExecutable": False}))
            finally:
                pool.close()
    finally:
        Envelope.pack = pack  # type: ignore[method-assign]
    host = socket.gethostname().encode()
    private = (folder.encode(), str(Path(__file__).parents[3]).encode(), b"@" + host, b"." + host)
    processor = _processor().encode()
    for data in said:
        if len(data) <= MAX_BYTES and not any(one in data for one in private):
            yield data.replace(processor, b"A processor".ljust(len(processor))[: len(processor)])


def _processor() -> str:
    """What the machine calls its processor: no business of a recording."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "no such processor"


def _work(client: Any, ad: Any) -> None:
    from shared.classad import ClassAd

    done = client.submit(ad, [ClassAd({}), ClassAd({})])
    client.wait(done.ids(), timeout=60)
    held = client.submit(ad, [ClassAd({"Requirements": False})])
    client.act("hold", held.ids(), reason="to be looked at")
    client.act("release", held.ids(), reason="it was nothing")
    list(client.jobs())
    list(client.ads("Machine"))
    client.analysis(*held.ids())
    client.set_priority("alice@example.org", "factor", 100.0)
    client.priorities()
    client.hads()
    client.act("remove", held.ids(), reason="not needed")


def main() -> None:
    there = {(one.type, one.version) for one in recorded()}
    lacking = {key: kind for key, kind in catalogue().items() if key not in there}
    if lacking:
        found: dict[tuple[str, int], bytes] = {}
        for data in from_a_pool():
            body = Envelope.unpack(data).body
            key = (body.type, body.version)
            if key in lacking and (key not in found or len(data) > len(found[key])):
                found[key] = data
        with (FOLDER / f"{VERSION}.jsonl").open("a") as file:
            for key, kind in sorted(lacking.items()):
                name, version = key
                data = found.get(key) or made_up(kind).pack()
                told = {"type": name, "version": version, "msgpack": base64.b64encode(data).decode()}
                file.write(json.dumps(told) + "\n")
        print(f"{len(lacking)} recorded, {len(found)} of them from a pool")
    examples = {}
    for one in recorded():
        envelope = Envelope.unpack(one.data)
        if isinstance(envelope.body, Event):
            head = {"id": envelope.id, "sender": envelope.sender, "type": one.type}
            examples[one.type] = {**head, **json.loads(envelope.body.model_dump_json())}
    EXAMPLES.write_text(json.dumps(dict(sorted(examples.items())), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

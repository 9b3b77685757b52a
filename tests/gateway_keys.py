"""The key with which the gateways of tests sign, and what those say of people."""

from pathlib import Path

from shared.bus import Bus, connect
from shared.bus.senders import TABLE
from shared.bus.statements import Keys, Signer, public_file
from shared.files import replace_on_disk
from shared.messages.base import Message, Person
from shared.operations import NEEDS

SIGNER = Signer.new()
KEYS = Keys(given=(SIGNER.public,))
#: Whoever a message does not name.
SOMEBODY = "root@pool"


def key_knobs(directory: Path) -> dict[str, str]:
    """Settings of daemons as processes, with the key in files of this directory."""
    path = directory / "gateway.key"
    directory.mkdir(parents=True, exist_ok=True)
    for file, text in ((path, SIGNER.private_pem), (public_file(path), SIGNER.public_pem)):
        if not file.exists() or file.read_bytes() != text:  # daemons that run read it at any moment
            replace_on_disk(file, text)
    return {"ROOST_GATEWAY_KEY": str(path), "ROOST_GATEWAY_KEYS": str(public_file(path))}


def person_for(message: Message) -> Person | None:
    """Whoever may have this message sent, with no more rights than it takes."""
    permit = TABLE[message.type].permit
    if permit is None:
        return None
    level = min(NEEDS[operation] for operation in permit.of(message)).name
    if getattr(message, "admin", False):
        level = "ADMINISTRATOR"
    user = getattr(message, "user", "") or getattr(message, "by", "") or SOMEBODY
    return Person(user, getattr(message, "level", "") or level)


def gateway_bus(url: str, sender: str = "gateway.test", **options: object) -> Bus:
    """A gateway's bus, which says of each message for whom it is; of one for nobody, that it is for SOMEBODY."""
    bus = connect(url, sender, signer=SIGNER, keys=KEYS, **options)
    call = bus.call

    async def signed(inbox: str, request: Message, **more: object) -> Message:
        person = person_for(request)
        if person is not None and getattr(request, "by", None) == "":
            request = request.model_copy(update={"by": person.user})
        return await call(inbox, request, **{"person": person, **more})

    bus.call = signed
    return bus

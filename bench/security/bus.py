"""The bus: messages of every type, whole and broken, from a user of the broker of every role, to every inbox, exchange
and queue.

A user does what the broker lets it; what it may by right is left out, for that is no attack on the daemons: a HAD leads
negotiators and tells which epochs there were, a negotiator hands out matches, defrag drains machines (docs/security.md
says what each may at worst)."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgpack

from bench.security import values
from bench.security.cases import CRASH, RIGHTS, Case, Fault, data_of, text
from bench.security.values import Dice
from shared.bus.amqp.delivery import BURIED_BY_HEADER, PUBLISHER_HEADER, QUEUE_HEADER, SEAL_HEADER
from shared.bus.api import Exchange
from shared.bus.definitions import topic_permissions
from shared.bus.topology import ROLES, WORK_QUEUES, inbox_queue
from shared.messages import catalogue
from shared.messages.ads import MOST_ADS
from shared.messages.base import BadMessage, Envelope, Message, new_id
from shared.messages.events import LeaderChanged
from shared.messages.flows import PUBLISHED, REQUESTS

KINDS: Final[Mapping[str, type[Message]]] = {kind.type: kind for kind in catalogue().values()}
#: The daemons of the pool that is attacked, and the inboxes they share.
DAEMONS: Final = ("collector.cm", "negotiator.cm", "had.cm", "schedd.ap", "startd.ep", "gateway.gw", "journal.cm")
INBOXES: Final = (*DAEMONS, "collector", "negotiator", "journal", "poolhistory", "startd.ep/visits", "schedd.off.ap")
ATTACKERS: Final = tuple(f"{role}.evil" for role in ROLES)
#: Types that a role is obeyed for.
BY_RIGHT: Final[Mapping[str, tuple[str, ...]]] = {
    "had": ("had.lead", "had.step-down", "had.handed-over", LeaderChanged.type),
    "negotiator": ("negotiation.get-requests", "negotiation.matches", "negotiation.match-notice"),
    "defrag": ("machine.drain", "machine.cancel-drain"),
}
#: What a message says beside its body, more than the client library should make objects of.
ODD_HEADERS: Final[tuple[dict[str, Any], ...]] = (
    {"many": [None] * 100_000},
    {f"name{number}": number for number in range(8_000)},
    {"few": [None] * 250},
    {SEAL_HEADER: [[[[[[[[[["deep"]]]]]]]]]]},
    {SEAL_HEADER: {"a": {"b": {}}}, QUEUE_HEADER: 2**40},
)
#: Bytes of an ad of which there are thousands in a message.
SMALL: Final = 400
#: Bytes that fill a large message.
LARGE: Final = (100_000, 1_000_000, 4_000_000)
LARGEST: Final = (1_000_000, 4_000_000, 15_000_000)


class Maker:
    """Makes inputs. It remembers some, to send them again. large: the share of messages with a text of megabytes,
    besides the usual few, and of those that tell of as many ads as one may."""

    def __init__(self, large: float = 0.0) -> None:
        self._large = large
        self._before: deque[Case] = deque(maxlen=50)
        self._told = 0  # messages about ads: each of them is newer than the one before

    def make(self, dice: Dice) -> Case:
        if self._large and dice.random() < self._large:
            self._told += 1
            return many_ads(dice, self._told)
        if self._before and dice.random() < 0.05:
            case = dict(dice.choice(self._before))
            return case | ({"user": dice.choice(ATTACKERS)} if dice.random() < 0.5 else {})
        case = made(dice, self._large)
        if not allowed(case) and dice.random() < 0.8:  # the broker's work, and a new channel each
            case = made(dice, self._large)
        if len(case["data"]) < 20_000:
            self._before.append(case)
        return case


def made(dice: Dice, large: float = 0.0) -> Case:
    """A message, to somewhere."""
    user = dice.choice(ATTACKERS)
    role = user.partition(".")[0]
    exchange, key, kind = _place(dice, role)
    while kind in BY_RIGHT.get(role, ()):
        kind = dice.choice(sorted(KINDS))
    # Mostly who it is; else somebody else.
    sender = user if dice.random() < 0.7 else dice.choice((*DAEMONS, *ATTACKERS, "", values.some_text(dice)[:300]))
    case: Case = {"family": "bus", "user": user, "exchange": exchange, "key": key}
    case |= {"data": text(_data(dice, kind, sender, large)), "type": kind}
    if exchange in ("", Exchange.RPC) and dice.random() < 0.6:
        case["answer"] = True
    if dice.random() < 0.03:
        case["as"] = dice.choice((*DAEMONS, "guest", ""))  # a user that the broker knows it is not
    if dice.random() < 0.1:
        case["headers"] = {
            name: dice.choice(
                (*DAEMONS, inbox_queue("schedd.ap"), "0" * 64, "\udcff".encode("utf-8", "replace").decode(), "")
            )
            for name in dice.sample(
                (BURIED_BY_HEADER, PUBLISHER_HEADER, QUEUE_HEADER, SEAL_HEADER, "x-roost-requeued-by"), 3
            )
        }
    if dice.random() < 0.005:
        case["headers"] = dice.choice(ODD_HEADERS)
    return case


def many_ads(dice: Dice, number: int) -> Case:
    """Thousands of ads of one daemon in a message, or few that are made to cost their reader much: whole, changed or
    taken back. number: of the message."""
    user, my_type, daemon = dice.choice(
        (("startd.evil", "Machine", "startd@evil"), ("schedd.evil", "Submitter", "schedd@evil"))
    )
    dear = dice.random() < 0.3
    count = dice.randrange(1, 5) if dear else dice.choice((500, MOST_ADS // 2, MOST_ADS, MOST_ADS, 20_000))
    ad = dice.choice(values.DEAR_ADS) if dear else values.packed_ad(dice)
    ads = [ad if dear or len(ad) < SMALL else b"\x80"] * count
    kind = dice.choice(("ads.update", "ads.update", "ads.delta", "ads.invalidate"))
    names = [f"s{one}" for one in range(count)]
    body: dict[str, Any] = {"my_type": my_type, "daemon": daemon, "start_time": 1, "sequence": number, "names": names}
    if kind == "ads.update":
        body |= {"ads": ads, "complete": dice.random() < 0.5}
    elif kind == "ads.delta":
        body |= {"base": number - 1, "changes": ads, "removed_attrs": [["a"]] * count, "gone": names[: count // 2]}
    envelope = {"v": 1, "type": kind, "tv": 1, "id": new_id_of(dice), "ts": 0.0, "sender": user, "body": body}
    data = text(bytes(msgpack.packb(envelope, unicode_errors="surrogatepass")))
    key = f"{kind.partition('.')[2]}.{my_type}.{daemon}"
    return {"family": "bus", "user": user, "exchange": str(Exchange.ADS), "key": key, "data": data, "type": kind}


def _place(dice: Dice, role: str) -> tuple[str, str, str]:
    """Exchange, key and type of message: mostly what belongs together and what the broker lets through."""
    kind = dice.random()
    if kind < 0.45:
        request = REQUESTS[dice.choice(sorted(REQUESTS))]
        inbox = _home(request.inbox, dice)
        return (
            (str(Exchange.RPC), inbox, request.type) if dice.random() < 0.5 else ("", inbox_queue(inbox), request.type)
        )
    if kind < 0.55:
        return "", dice.choice((*map(inbox_queue, INBOXES), *WORK_QUEUES)), dice.choice(sorted(KINDS))
    if kind < 0.58:
        return str(Exchange.DEAD), "", dice.choice(sorted(KINDS))
    entry = dice.choice([one for one in PUBLISHED if role in one.by or dice.random() < 0.2] or list(PUBLISHED))
    name = dice.choice(entry.types)
    daemon = f"{role}@evil" if dice.random() < 0.8 else dice.choice(("startd@ep", "schedd@ap", "x"))
    my_type = dice.choice(("Machine", "Submitter", "Scheduler", "DaemonMaster", "Negotiator", "Accounting", "HAD"))
    key = entry.key.replace("{daemon}", daemon).replace("{my_type}", my_type).replace("{type}", name)
    return entry.exchange, key, name


def _home(inbox: str, dice: Dice) -> str:
    """The inbox of this pool that the table means."""
    role, _, rest = inbox.partition(".")
    if role == "{subsystem}" or not rest:
        return inbox if not rest else dice.choice(DAEMONS)
    named = [
        one for one in INBOXES if one.startswith(f"{role}.") and one.endswith("/visits") == rest.endswith("/visits")
    ]
    return dice.choice(named or list(DAEMONS))


def _data(dice: Dice, kind: str, sender: str, large: float) -> bytes:
    chance = dice.random()
    if chance < 0.02:
        return dice.randbytes(dice.randrange(300))
    if chance < 0.03:
        return values.deep(dice)
    body: Any = values.fields_of(KINDS[kind], dice)
    if sender.endswith(".evil") and dice.random() < 0.8:
        # What has to name the sender does, so that the daemon reads on.
        role, _, name = sender.partition(".")
        named = {"daemon": f"{role}@{name}", "startd": name, "schedd": name, "had": name, "by": sender}
        body |= {field: value for field, value in named.items() if field in body}
    if chance < 0.06:
        body[dice.choice(list(body) or ["x"])] = values.deep(dice) if chance < 0.05 else "x" * dice.choice(LARGE)
    if large and dice.random() < large:
        body[dice.choice(list(body) or ["x"])] = "x" * dice.choice(LARGEST)
    envelope = {"v": 1, "type": kind, "tv": 1, "id": new_id_of(dice), "ts": values.real(dice), "sender": sender}
    envelope |= {"epoch": dice.choice((None, 0, 1, 2**63)), "trace": None, "body": body}
    if dice.random() < 0.1:
        person = {"user": "root@pool", "level": "ADMINISTRATOR", "scopes": [], "key": "0" * 16, "until_ms": 2**53}
        envelope["statement"] = person | {"signature": dice.randbytes(64)}
    if dice.random() < 0.1:
        envelope[dice.choice(list(envelope))] = values.of(Any, dice)
    packed: bytes = msgpack.packb(envelope, unicode_errors="surrogatepass")
    return values.altered(dice, packed) if dice.random() < 0.2 else packed


def new_id_of(dice: Dice) -> str:
    """As new_id makes them, of the dice."""
    return f"{dice.getrandbits(128):032x}" if dice.random() < 0.95 else new_id()[:0]


def allowed(case: Case) -> bool:
    """Whether the broker lets a message of this user to where it goes, so that it is worth a channel. Pure."""
    if case.get("as", case["user"]) != case["user"]:
        return False
    if case["exchange"] in ("", str(Exchange.DEAD)):
        return True
    for exchange, keys in _topics(case["user"]):
        if exchange == case["exchange"]:
            return keys.search(case["key"]) is not None
    return False


@cache
def _topics(user: str) -> list[tuple[str, re.Pattern[str]]]:
    role, _, name = user.partition(".")
    return [(entry["exchange"], re.compile(entry["write"])) for entry in topic_permissions(role, name)]


def judge(case: Case, answer: bytes) -> list[Fault]:
    """What is wrong with the answer to a call. Pure."""
    try:
        body = Envelope.unpack(answer).body
    except BadMessage as error:
        return [Fault(CRASH, "bus", f"an answer that is none: {error}", (case,))]
    code = getattr(body, "code", "")
    if code == "internal":
        return [Fault(CRASH, "bus", f"internal: {getattr(body, 'reason', '')}"[:1000], (case,))]
    if body.type == "failure":
        return []
    request = REQUESTS.get(case["type"])
    role = case["user"].partition(".")[0]
    if request is None or role not in request.by:
        # Bytes may have been changed into a type that the role may send; then it is no wonder.
        said = _type_of(case)
        if said in REQUESTS and role in REQUESTS[said].by:
            return []
        return [Fault(RIGHTS, "bus", f"{role} was answered {body.type}", (case,))]
    return []


def _type_of(case: Case) -> str:
    try:
        return Envelope.unpack(data_of(case["data"])).body.type
    except BadMessage:
        return ""

"""What is wrong with a pool's daemons, with the servers that they stand on and with a machine's set-up, and how it is
mended: what `roost doctor` says besides what the dashboard's overview shows (engine.attention), whose findings it
shares.

`check_pool` goes over what a gateway gathered of all daemons, `check_machine` over what was seen on the machine where
the command runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, Literal

from engine.attention import Certificate, Disk, Facts, Finding, attention, gravest_first

#: A clock may be so far from the others', besides what asking took, seconds.
CLOCK_S: Final = 2.0
#: A loop that was held counts for so long, seconds.
LOOP_S: Final = 600.0
#: Messages that have to wait, and not become fewer, for a queue to be told of.
QUEUE_GROWS: Final = 1_000
MIB: Final = 1 << 20

_CLOCKS: Final = "fault-tolerance.md#clocks"
_DAEMONS: Final = "daemons.md"
_BROKER: Final = "bus.md"
_STORE: Final = "state.md"


@dataclass(frozen=True, slots=True)
class Told:
    """One daemon that was asked. silent: why it did not answer. clock_s: its clock before that of who asked, seconds,
    give or take unsure_s; None: not known. health: shared.daemon.health_told; empty: it is of an earlier release."""

    subsystem: str
    name: str
    off: bool = False
    silent: str = ""
    clock_s: float | None = None
    unsure_s: float = 0.0
    health: Mapping[str, Any] = field(default_factory=dict)

    @property
    def called(self) -> str:
        return f"{self.subsystem.lower()} {self.name}"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Messages that waited in a queue, at two moments."""

    name: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Pool:
    """What was gathered. own_clock_s: the clock of the machine that the command runs on, before the gateway's, seconds;
    None: not known. hads: shared.messages.had.HadStanding, with `silent`. machines: how many there are."""

    daemons: Sequence[Told] = ()
    queues: Sequence[Waiting] = ()
    hads: Sequence[Mapping[str, Any]] = ()
    own_clock_s: float | None = None
    machines: int = 0


@dataclass(frozen=True, slots=True)
class Server:
    """The broker or the store, from the machine where the command runs. knob: that names it. trouble: why it can not be
    used, in the words of who tried; empty: it can. release: of the server, where it says so."""

    kind: Literal["broker", "store"]
    knob: str
    trouble: str = ""
    release: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine's own set-up, as far as its configuration names any of it."""

    servers: Sequence[Server] = ()
    disks: Sequence[Disk] = ()
    certificates: Sequence[Certificate] = ()
    configuration: str = ""  # why it can not be read


def told_of(found: Mapping[str, Any]) -> list[Told]:
    """The daemons in what the gateway answers (/v1/daemons/health)."""
    names = ("subsystem", "name", "off", "silent", "clock_s", "unsure_s", "health")
    return [Told(**{name: one[name] for name in names if name in one}) for one in found.get("daemons", ())]


def check_pool(pool: Pool, now: float) -> list[Finding]:
    """now: of the gateway's clock, s since 1970; errors first."""
    return gravest_first(
        [
            *_answers(pool.daemons),
            *_clocks(pool),
            *_loops(pool.daemons),
            *_leads(pool.hads),
            *_queues(pool.queues),
            *attention(Facts(disks=_disks(pool.daemons), certificates=_certificates(pool.daemons)), now),
            *_not_looked(pool),
        ]
    )


def check_machine(machine: Machine, now: float) -> list[Finding]:
    """now: s since 1970; errors first."""
    found = []
    if machine.configuration:
        text = f"The configuration of this machine can not be read: {machine.configuration}"
        found.append(Finding("configuration", "error", text, help="configuration.md", command="roost config-val -dump"))
    for server in machine.servers:
        found += _server(server)
    found += attention(Facts(disks=machine.disks, certificates=machine.certificates), now)
    return gravest_first(found)


#: A code of engine.attention, and ours that tells the same more exactly.
_SAME: Final = {"no-leader": "lease", "silent": "no-answer"}


def merged(*lists: Iterable[Finding]) -> list[Finding]:
    """Findings of several places, each once, errors first."""
    seen: dict[tuple[str, str], Finding] = {}
    for one in (finding for found in lists for finding in found):
        seen.setdefault((one.code, one.text), one)
    codes = {code for code, _ in seen}
    return gravest_first(one for one in seen.values() if _SAME.get(one.code) not in codes)


def needs_somebody(findings: Iterable[Finding]) -> bool:
    """Whether there is something to do: notes are none."""
    return any(one.level != "note" for one in findings)


def mend(trouble: str, kind: Literal["broker", "store"]) -> str:
    """What to do where RabbitMQ or Redis can not be used; empty where the words say it already, or nobody knows."""
    said = trouble.lower()
    return next((mend for needles, mend in _MENDS[kind] if any(needle in said for needle in needles)), "")


_NAMES: Final = ("name or service not known", "name resolution", "nodename nor servname", "no address associated")
_NO_ANSWER: Final = ("timed out", "timeouterror", "no answer within", "timeout connecting")
_MENDS: Final[Mapping[str, Sequence[tuple[Sequence[str], str]]]] = {
    "broker": (
        (
            ("not_allowed", "vhost", "virtual host"),
            "its URL names a virtual host that is not there, or that this user may not use: rabbitmqctl add_vhost "
            "NAME, and rabbitmqctl set_permissions -p NAME USER '.*' '.*' '.*' (or the rights of docs/bus.md)",
        ),
        (
            ("access_refused", "authentication", "login was refused", "login refused"),
            "user or password are wrong: put the right ones into ROOST_AMQP_URL, or have the daemon enrolled again "
            "(roost enroll); rabbitmqctl authenticate_user USER tries them",
        ),
        (
            ("connection refused", "connect call failed", "errno 111"),
            "nothing listens there: start RabbitMQ (systemctl start rabbitmq-server), or correct host and port",
        ),
        (_NAMES, "no host of that name is known on this machine: correct it, or this machine's name resolution"),
        (
            ("network is unreachable", "no route to host"),
            "there is no way to that host: look at this machine's network, or correct the host",
        ),
        (_NO_ANSWER, "the host does not answer on that port: look at firewalls between, and whether RabbitMQ is well"),
        (
            ("blocked", "alarm"),
            "RabbitMQ takes no messages, as it is short of disk or memory: make room there "
            "(rabbitmq-diagnostics alarms)",
        ),
    ),
    "store": (
        (("older than redis 7", "unknown command"), "install Redis 7 or newer, or Valkey; its data can stay"),
        (
            ("wrongpass", "noauth", "invalid username-password", "invalid password", "authentication required"),
            "user or password are wrong: put the right ones into ROOST_REDIS_URL (redis://user:password@host/0)",
        ),
        (("noperm", "no permissions", "access list"), "write its access list anew (docs/state.md, Rights)"),
        (
            ("misconf", "no space", "disk"),
            "Redis can not write its files: make room on its disk, then it goes on by itself",
        ),
        (("maxmemory", "oom "), "raise its maxmemory, or make room"),
        (("loading",), "it reads its data still: wait"),
        (
            ("connection refused", "errno 111", "connect call failed"),
            "nothing listens there: start Redis (systemctl start redis-server), or correct host and port",
        ),
        (_NAMES, "no host of that name is known on this machine: correct it, or this machine's name resolution"),
        (_NO_ANSWER, "the host does not answer on that port: look at firewalls between, and whether Redis is well"),
    ),
}


def _server(server: Server) -> Iterator[Finding]:
    called = {"broker": "RabbitMQ", "store": "Redis"}[server.kind]
    page = {"broker": _BROKER, "store": _STORE}[server.kind]
    if server.trouble:
        what = mend(server.trouble, server.kind)
        text = f"{called}, which {server.knob} names, can not be used from here: {server.trouble}"
        yield Finding(server.kind, "error", f"{text}: {what}." if what else text, help=page)
    elif server.kind == "store" and (number := _major(server.release)) is not None and number < 7:
        text = f"Redis is {server.release}, which is older than Redis 7: {mend('older than redis 7', 'store')}."
        yield Finding("store", "error", text, help=page)


def _major(release: str) -> int | None:
    first = release.partition(".")[0]
    return int(first) if first.isdigit() else None


def _answers(daemons: Sequence[Told]) -> Iterator[Finding]:
    for one in daemons:
        about = {"page": "machine", "name": one.name} if one.subsystem == "STARTD" else {}
        if one.off:
            text = f"The {one.called} is switched off."
            yield Finding("off", "note", text, about=about, command=f"roost on -{one.subsystem.lower()} {one.name}")
            continue
        if one.silent:
            text = (
                f"The {one.called} does not answer ({one.silent}): look whether its process runs and what its log "
                "says; if it is gone for good, its ad goes by itself."
            )
            yield Finding("no-answer", "error", text, about=about, help=_DAEMONS)
            continue
        for what in one.health.get("waiting_for", ()):
            kind: Literal["broker", "store"] = "store" if str(what).startswith("store") else "broker"
            how = mend(str(what), kind)
            text = f"The {one.called} does not do its work; it waits for {what}" + (f": {how}." if how else ".")
            yield Finding("waits", "error", text, about=about, help=_DAEMONS)
        for what in one.health.get("troubles", ()):
            yield Finding("trouble", "warning", f"The {one.called}: {what}", about=about, help=_DAEMONS)
        if denied := one.health.get("bus", {}).get("denied"):
            count = sum(denied.values())
            text = (
                f"The {one.called} refused {count} messages since it began, as who sent them may not "
                f"({', '.join(sorted(denied)[:3])}): its log says who (bus.denied)."
            )
            yield Finding("denied", "note", text, count, about=about, help=_BROKER)


def _clocks(pool: Pool) -> Iterator[Finding]:
    """Clocks apart from the others'. The middle one of all is taken for right."""
    known = [one for one in pool.daemons if one.clock_s is not None]
    if not known:
        return
    right = median(one.clock_s for one in known if one.clock_s is not None)
    for one in known:
        assert one.clock_s is not None
        off = one.clock_s - right
        if abs(off) > CLOCK_S + one.unsure_s:
            yield _clock(f"of the {one.called}", off)
    if pool.own_clock_s is not None and abs(pool.own_clock_s - right) > CLOCK_S:
        yield _clock("of this machine, where the command runs,", pool.own_clock_s - right)


def _clock(whose: str, off: float) -> Finding:
    way = "ahead of" if off > 0 else "behind"
    text = (
        f"The clock {whose} is {abs(off):.0f} s {way} the others': have it kept by NTP (timedatectl set-ntp true, or "
        "chrony), and look at its time zone's UTC setting."
    )
    return Finding("clock", "error" if abs(off) >= 60 else "warning", text, help=_CLOCKS, command="timedatectl")


def _loops(daemons: Sequence[Told]) -> Iterator[Finding]:
    for one in daemons:
        loop = one.health.get("loop") or {}
        last = loop.get("last")
        if not last or last.get("ago_s", LOOP_S) >= LOOP_S:
            continue
        text = (
            f"The event loop of the {one.called} was held {loop.get('held')} times for more than "
            f"{1000 * loop.get('longer_than_s', 0.05):.0f} ms, the last time for {last.get('processor_s')} s by "
            f"{last.get('by')}: everybody who asks it waits meanwhile. If it goes on, report it with "
            "`roost support-bundle`."
        )
        yield Finding("loop", "warning", text, loop.get("held", 1), help="daemons.md#a-daemon-that-is-busy")


def _leads(hads: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """The leases of those that choose the active negotiator, for each shard."""
    shards: dict[str, list[Mapping[str, Any]]] = {}
    for one in hads:
        shards.setdefault(str(one.get("shard") or ""), []).append(one)
    for shard, its in sorted(shards.items()):
        of = f" of {shard}" if shard else ""
        answering = [one for one in its if not one.get("silent")]
        leaders = [str(one.get("had")) for one in answering if one.get("state") == "Leader"]
        if answering and not leaders:
            text = f"No HAD{of} holds the lease: no negotiator is active, and idle jobs get no machines."
            yield Finding(
                "lease", "error", text, about={"page": "availability"}, help="fault-tolerance.md", command="roost had"
            )
        elif len(leaders) > 1:
            text = f"{' and '.join(leaders)} say{of} that they lead: one of them has lost touch with Redis."
            yield Finding(
                "lease", "error", text, about={"page": "availability"}, help="fault-tolerance.md", command="roost had"
            )
        for one in answering:
            if one.get("problem"):
                text = f"The HAD {one.get('had')} has no new copy of the accounting records: {one['problem']}"
                yield Finding("copy", "warning", text, help="fault-tolerance.md", command="roost had")
            if one.get("held_back_s"):
                text = (
                    f"The negotiator of HAD {one.get('had')} keeps dying, so it stands behind the others: see its log."
                )
                yield Finding("held-back", "warning", text, help="fault-tolerance.md", command="roost had")


def _queues(queues: Sequence[Waiting]) -> Iterator[Finding]:
    for one in queues:
        if one.after >= QUEUE_GROWS and one.after >= one.before:
            text = (
                f"{one.after} messages wait in the queue {one.name}, and they become no fewer: who reads it is gone "
                "or slower than who writes; start it, or one more, or give it a processor."
            )
            yield Finding("queue", "warning", text, one.after, help=_BROKER)


def _disks(daemons: Sequence[Told]) -> list[Disk]:
    """Each disk once for each daemon: directories of one disk have the same free room and size."""
    found = []
    for one in daemons:
        seen: dict[tuple[int, int], str] = {}
        for name, (free, size) in sorted((one.health.get("disks") or {}).items()):
            seen[free, size] = f"{seen[free, size]}, {name}" if (free, size) in seen else name
        of = f"machine {one.name}" if one.subsystem == "STARTD" else one.called
        found += [Disk(of, names.upper(), free / MIB) for (free, _), names in seen.items()]
    return found


def _certificates(daemons: Sequence[Told]) -> list[Certificate]:
    return [
        Certificate(f"{one.called} ({path})", float(ends))
        for one in daemons
        for path, ends in sorted((one.health.get("certificates") or {}).items())
    ]


def _not_looked(pool: Pool) -> Iterator[Finding]:
    asked = sum(one.subsystem == "STARTD" for one in pool.daemons)
    if pool.machines > asked:
        text = f"{asked} of {pool.machines} machines were asked; of the others only their ads were looked at."
        yield Finding("not-asked", "note", text)
    older = [one.called for one in pool.daemons if not (one.silent or one.off or one.health)]
    if older:
        text = f"{len(older)} daemons are of an earlier release and do not tell how they do, such as the {older[0]}."
        yield Finding("older", "note", text, len(older), help="upgrade.md", command="roost upgrade -check")

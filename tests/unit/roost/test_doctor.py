"""What `roost doctor` finds in what was gathered: each kind of trouble, what to do about it, and nothing else."""

import pytest

from engine.attention import Certificate, Disk, Finding
from engine.doctor import (
    LOOP_S,
    MIB,
    QUEUE_GROWS,
    Machine,
    Pool,
    Server,
    Told,
    Waiting,
    check_machine,
    check_pool,
    merged,
    needs_somebody,
    told_of,
)
from roost.cli.doctor import told
from roost.doctor import Report

NOW = 1_800_000_000.0
WELL = {"release": "0.1.0", "waiting_for": [], "troubles": [], "loop": {"held": 0, "longer_than_s": 0.05}}
HAD = {"had": "cm1", "shard": "", "state": "Leader", "silent": "", "problem": "", "held_back_s": 0.0}


def daemon(subsystem="SCHEDD", name="ap1", clock_s=0.0, **health):
    return Told(subsystem, name, clock_s=clock_s, unsure_s=0.01, health=WELL | health)


def texts(findings):
    return [one.text for one in findings]


def codes(findings):
    return [(one.code, one.level) for one in findings]


def only(pool) -> Finding:
    (found,) = check_pool(pool, NOW)
    return found


def test_a_pool_that_is_well_gives_no_findings():
    pool = Pool(
        daemons=[daemon(), daemon("STARTD", "node1", disks={"spool": [9_000_000_000, 20_000_000_000]})],
        queues=[Waiting("roost.collector", 12, 3)],
        hads=[HAD],
        own_clock_s=0.2,
        machines=1,
    )
    assert check_pool(pool, NOW) == []
    assert not needs_somebody([])


def test_a_daemon_that_does_not_answer_is_an_error_and_one_that_is_off_is_not():
    silent = Told("STARTD", "node7", silent="nobody is at its inbox")
    off = Told("NEGOTIATOR", "cm1", off=True)
    found = check_pool(Pool(daemons=[off, silent], machines=1), NOW)
    assert codes(found) == [("no-answer", "error"), ("off", "note")]
    assert "startd node7" in found[0].text
    assert "nobody is at its inbox" in found[0].text
    assert found[1].command == "roost on -negotiator cm1"


def test_what_a_daemon_waits_for_comes_with_its_mend():
    refused = daemon(waiting_for=["bus: the broker: ConnectionRefusedError: Connect call failed ('10.0.0.1', 5672)"])
    assert "start RabbitMQ" in only(Pool(daemons=[refused])).text
    full = daemon(
        "COLLECTOR", "cm1", waiting_for=["store: Redis at cm: MISCONF Redis is configured to save RDB snapshots"]
    )
    assert "make room on its disk" in only(Pool(daemons=[full])).text
    other = daemon(waiting_for=["setup"])
    assert only(Pool(daemons=[other])).text == "The schedd ap1 does not do its work; it waits for setup."


def test_troubles_are_warnings():
    found = only(Pool(daemons=[daemon("STARTD", "node1", troubles=["jobs have no cgroups: Delegate=yes"])], machines=1))
    assert (found.code, found.level) == ("trouble", "warning")
    assert found.about == {"page": "machine", "name": "node1"}


def test_the_one_clock_that_is_an_hour_off_is_named_and_no_other():
    daemons = [daemon(name="ap1"), daemon(name="ap2", clock_s=3600.0), daemon(name="ap3", clock_s=0.5)]
    found = only(Pool(daemons=daemons))
    assert (found.code, found.level) == ("clock", "error")
    assert "schedd ap2 is 3600 s ahead of" in found.text
    assert "NTP" in found.text


def test_where_the_gateways_clock_is_wrong_the_gateway_is_named():
    # All are an hour behind the gateway that asks, and so is the machine where the command runs.
    daemons = [daemon(name=f"ap{n}", clock_s=-3600.0) for n in range(3)] + [daemon("GATEWAY", "gw1")]
    found = only(Pool(daemons=daemons, own_clock_s=-3600.0))
    assert "gateway gw1 is 3600 s ahead of" in found.text


def test_a_clock_is_judged_by_what_asking_took():
    slow = Told("SCHEDD", "ap2", clock_s=4.0, unsure_s=3.0, health=WELL)
    assert check_pool(Pool(daemons=[daemon(), daemon(name="ap3"), slow]), NOW) == []


def test_the_clock_of_the_machine_where_the_command_runs_counts():
    found = only(Pool(daemons=[daemon()], own_clock_s=-90.0))
    assert "this machine, where the command runs, is 90 s behind" in found.text


def test_a_held_loop_names_who_held_it_as_long_as_it_is_news():
    loop = {"held": 3, "longer_than_s": 0.05, "last": {"ago_s": 20.0, "processor_s": 0.31, "by": "services.x.y"}}
    found = only(Pool(daemons=[daemon(loop=loop)]))
    assert (found.code, found.level, found.count) == ("loop", "warning", 3)
    assert "services.x.y" in found.text
    old = loop | {"last": loop["last"] | {"ago_s": LOOP_S}}
    assert check_pool(Pool(daemons=[daemon(loop=old)]), NOW) == []


@pytest.mark.parametrize(
    ("hads", "words"),
    [
        ([HAD | {"state": "Passive"}], "No HAD holds the lease"),
        ([HAD, HAD | {"had": "cm2"}], "cm1 and cm2 say that they lead"),
        ([HAD, HAD | {"had": "cm2", "state": "Passive", "problem": "its disk is full"}], "its disk is full"),
        ([HAD | {"held_back_s": 30.0}], "keeps dying"),
        ([HAD, HAD | {"had": "x1", "shard": "gpu", "state": "Passive"}], "No HAD of gpu holds the lease"),
    ],
)
def test_leases(hads, words):
    assert words in only(Pool(hads=hads)).text


def test_a_silent_had_says_nothing_of_the_lease():
    assert check_pool(Pool(hads=[{"had": "cm1", "shard": "", "silent": "no answer"}]), NOW) == []


def test_queues_that_grow_and_no_others():
    growing = Waiting("roost.collector", QUEUE_GROWS, QUEUE_GROWS + 500)
    standing = Waiting("roost.view", QUEUE_GROWS, QUEUE_GROWS)
    shrinking = Waiting("roost.view", QUEUE_GROWS + 500, QUEUE_GROWS)
    short = Waiting("roost.inbox.schedd.ap1", 5, 9)
    assert check_pool(Pool(queues=[shrinking, short]), NOW) == []
    found = check_pool(Pool(queues=[growing, standing]), NOW)
    assert codes(found) == [("queue", "warning")] * 2
    assert all("become no fewer" in text for text in texts(found))


def test_disks_are_told_once_for_all_directories_on_them():
    full = daemon(
        disks={"spool": [50 * MIB, 1000 * MIB], "execute": [50 * MIB, 1000 * MIB], "log": [4096 * MIB, 9000 * MIB]}
    )
    found = only(Pool(daemons=[full]))
    assert (found.code, found.level) == ("disk", "error")
    assert "50 MiB left for EXECUTE, SPOOL" in found.text


def test_certificates_near_their_end():
    ends = {"/etc/pool/a.pem": NOW + 86_400.0, "/etc/pool/b.pem": NOW - 1.0, "/etc/pool/c.pem": NOW + 90 * 86_400.0}
    found = check_pool(Pool(daemons=[daemon(certificates=ends)]), NOW)
    assert codes(found) == [("certificate", "error"), ("certificate", "warning")]
    assert "/etc/pool/b.pem" in found[0].text
    assert "/etc/pool/a.pem" in found[1].text


def test_who_was_not_asked_is_told_as_a_note():
    found = check_pool(Pool(daemons=[daemon("STARTD", "node1"), Told("SCHEDD", "old")], machines=9), NOW)
    assert codes(found) == [("not-asked", "note"), ("older", "note")]
    assert not needs_somebody(found)


def test_refused_messages_are_a_note():
    found = only(Pool(daemons=[daemon(bus={"denied": {"ads.update": 4}})]))
    assert (found.code, found.level, found.count) == ("denied", "note", 4)


@pytest.mark.parametrize(
    ("kind", "trouble", "words"),
    [
        ("broker", "cm:5672: ConnectionRefusedError: [Errno 111] Connect call failed", "start RabbitMQ"),
        ("broker", "cm:5672: ProbableAuthenticationError: ACCESS_REFUSED - Login was refused", "user or password"),
        ("broker", "cm:5672: NOT_ALLOWED - vhost pool not found", "add_vhost"),
        ("broker", "cm:5672: gaierror: [Errno -2] Name or service not known", "no host of that name"),
        ("broker", "cm:5672: no answer within 5 s", "firewalls"),
        ("store", "Redis at cm: ConnectionError: Error 111 connecting: Connection refused", "start Redis"),
        ("store", "AuthenticationError: WRONGPASS invalid username-password pair", "user or password"),
        ("store", "Redis at cm: it has no functions, so it is older than Redis 7: upgrade it", "Redis 7 or newer"),
        ("store", "MISCONF Errors writing to the AOF file: No space left on device", "make room on its disk"),
    ],
)
def test_a_server_that_can_not_be_used_comes_with_the_mend(kind, trouble, words):
    knob = {"broker": "ROOST_AMQP_URL", "store": "ROOST_REDIS_URL"}[kind]
    (found,) = check_machine(Machine(servers=[Server(kind, knob, trouble)]), NOW)
    assert knob in found.text
    assert found.level == "error"
    assert words in found.text


def test_a_redis_that_is_too_old_is_told_by_its_release():
    (found,) = check_machine(Machine(servers=[Server("store", "ROOST_REDIS_URL", "", "6.0.16")]), NOW)
    assert found.level == "error"
    assert "Redis is 6.0.16" in found.text
    assert "Redis 7 or newer" in found.text


def test_a_machine_that_is_set_up_well_gives_no_findings():
    servers = [Server("broker", "ROOST_AMQP_URL"), Server("store", "ROOST_REDIS_URL", "", "7.2.4")]
    machine = Machine(servers, [Disk("disk", "SPOOL", 5000.0)], [Certificate("file", NOW + 1e8)])
    assert check_machine(machine, NOW) == []


def test_what_is_wrong_on_a_machine():
    machine = Machine(
        disks=[Disk("disk of /var on this machine", "SPOOL", 20.0)],
        certificates=[Certificate("file a.pem on this machine", NOW - 5)],
        configuration="config:3: X is not closed",
    )
    assert {one.code for one in check_machine(machine, NOW)} == {"configuration", "disk", "certificate"}


def test_findings_of_several_places_are_told_once_errors_first():
    note, error = Finding("off", "note", "n"), Finding("disk", "error", "e")
    assert merged([note], [error, note], [error]) == [error, note]
    assert needs_somebody([note, error])
    led, lease = Finding("no-leader", "error", "a"), Finding("lease", "error", "b")
    assert merged([led, lease]) == [lease]
    assert merged([led]) == [led]


def test_what_a_gateway_tells_is_read_whatever_else_it_says():
    found = {"daemons": [{"subsystem": "HAD", "name": "cm1", "off": False, "silent": "", "clock_s": None, "more": 1}]}
    assert told_of(found) == [Told("HAD", "cm1")]
    assert told_of({}) == []


def test_the_command_shows_what_is_wrong_and_what_shows_more():
    found = Finding(
        "lease", "error", "No HAD holds the lease: " + "word " * 30, help="fault-tolerance.md", command="roost had"
    )
    lines = told(Report([found], ["clocks"], {"daemons": [1, 2]}), "http://gw", 80)
    assert lines[0] == "Pool at http://gw, 2 daemons asked: 1 error"
    assert lines[1].startswith("error    No HAD")
    assert "         see roost had; docs/fault-tolerance.md" in lines
    assert lines[-1] == "Looked at: clocks."
    assert max(map(len, lines)) <= 80
    assert told(Report([]), "u", 80) == ["Pool at u: nothing to complain of"]

"""What jobs may say in the Chirp protocol: lines of any bytes, rights, delayed attributes, connections."""

import asyncio
import contextlib
import random

import pytest

from services.startd.core.run.chirp import (
    CONTENT,
    LINE_BYTES,
    PACE_BURST,
    VERBS,
    ChirpSettings,
    DelayedUpdates,
    OpenFiles,
    Pace,
    Request,
    Rights,
    cookie_of,
    parse,
    rights_of,
)
from services.startd.run import chirp_server, chirp_session
from services.startd.run.chirp_server import ChirpServer
from services.startd.run.chirp_session import ChirpJob
from services.startd.run.condor_chirp import words
from shared.chirp import Answer, BadRequest, Code, pack_request, unpack_request
from shared.classad import ClassAd

ALL = Rights(files=True, attributes=True, updates=True, delayed=True)


# -- lines


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        (b"open data wct 511", Request("open", ("data", "wct"), (511,))),
        (b"getfile a\\ b\\\\c", Request("getfile", ("a b\\c",))),
        (b"set_job_attr  Foo\t1\\ +\\ 2  more words", Request("set_job_attr", ("Foo", "1 + 2"))),
        (b"putfile x 420 0", Request("putfile", ("x",), (420, 0))),
        (b"lseek 3 -4 1", Request("lseek", (), (3, -4, 1))),
        (b"version", Request("version")),
        (b"ulog \xff\\\n", Request("ulog", ("\udcff\n",))),
        (b"", None),
        (b"open data", None),
        (b"open data w five", None),
        (b"read 3 99999999999999999999", None),
        (b"write 3 -1", None),
        (b"putfile x 420 -1", None),
        (b"getfile a\0b", None),
        (b"phase two", None),
        (b"OPEN a w 1", None),
    ],
)
def test_a_line_is_a_request_or_none(line, request_):
    assert parse(line) == request_


def test_any_bytes_are_read_as_a_request_or_as_none():
    random_ = random.Random(5)
    verbs = [verb.encode() for verb in VERBS]
    read = 0
    for _ in range(4000):
        pieces = [random_.choice([*verbs, b"3", b"-7", b"\\", b" ", b"\t", b"x\\ y", random_.randbytes(5)])]
        pieces += [random_.choice([b" ", b"12", b"a", b"\\\\", b"9" * 30, random_.randbytes(3)]) for _ in range(9)]
        request = parse(b"".join(pieces))
        if request is not None:
            read += 1
            assert request.content >= 0
            assert (len(request.words), len(request.numbers)) == tuple(VERBS[request.verb][1].count(c) for c in "sd")
    assert read > 100


def test_the_client_writes_what_the_proxy_reads():
    awkward = "a b\\c\td\ne\r"
    assert parse(words("rename", awkward, "x").rstrip(b"\n")) == Request("rename", (awkward, "x"))
    assert set(CONTENT) == {"write", "pwrite", "swrite", "putfile"}


def test_a_cookie_is_one_word():
    assert cookie_of(b"cookie abc") == b"abc"
    assert [cookie_of(line) for line in (b"cookie", b"cookie a b", b"kookie a", b"")] == [None] * 4


def test_what_the_access_point_is_asked_is_read_or_refused():
    assert unpack_request(pack_request("write", "p", 3, b"xyz", 0)) == ("write", ["p", 3, b"xyz", 0])
    random_ = random.Random(7)
    broken = [b"", b"\xc1", b"\x90", pack_request(3), pack_request("x", True), pack_request("x", 2**62)]
    broken += [
        pack_request("x", "a\0b"),
        pack_request("x", [1]),
        pack_request("x", "y" * 10_000),
        pack_request("x", 1.5),
    ]
    broken += [random_.randbytes(20) for _ in range(500)]
    refused = 0
    for packed in broken:
        try:
            unpack_request(packed)
        except BadRequest:
            refused += 1
    assert refused >= 500
    assert Answer.unpack(b"\x92\x01").result == Answer.unpack(b"\x92\xa1x\x01").result == Code.UNKNOWN
    assert Answer.unpack(Answer(4, b"data").pack()) == Answer(4, b"data")


# -- rights


@pytest.mark.parametrize(
    ("settings", "job", "rights"),
    [
        ({}, {}, Rights(delayed=True)),
        ({}, {"WantIOProxy": True}, ALL),
        ({}, {"WantRemoteUpdates": True}, Rights(attributes=True, updates=True, delayed=True)),
        ({}, {"WantIOProxy": True, "WantRemoteUpdates": False}, Rights(files=True, delayed=True)),
        ({}, {"WantDelayedUpdates": False}, Rights()),
        ({"enabled": False}, {"WantIOProxy": True}, Rights()),
        ({"files": False}, {"WantIOProxy": True}, Rights(delayed=True)),
        ({"files": False}, {"WantRemoteUpdates": True}, Rights(attributes=True, updates=True, delayed=True)),
        ({"updates": False}, {"WantIOProxy": True}, Rights(files=True, attributes=True, delayed=True)),
        ({"delayed": False}, {}, Rights()),
    ],
)
def test_rights_come_of_the_machine_and_the_job(settings, job, rights):
    assert rights_of(ChirpSettings(**settings), ClassAd(job)) == rights


def test_delayed_attributes_have_their_prefix_their_number_and_their_size():
    delayed = DelayedUpdates(ChirpSettings(prefixes=("Chirp*", "Mine"), most_delayed=2))
    job = ClassAd({"ChirpOld": 4, "Owner": "alice"})
    assert delayed.set("ChirpA", "1 + 1") is None
    assert delayed.set("chirpa", "3") is None
    assert delayed.set("MINE", '"text"') is None
    assert delayed.set("ChirpMore", "1") == Code.NOT_AUTHORIZED
    assert delayed.set("Owner", '"eve"') == Code.NOT_AUTHORIZED
    assert delayed.set("Chirp A", "1") == Code.NOT_AUTHORIZED
    assert delayed.set("ChirpA", "1 +") == Code.INVALID_REQUEST
    assert delayed.set("ChirpA", "1" * 1000) == Code.TOO_BIG
    assert {name: str(expr) for name, expr in delayed.values.items()} == {"ChirpA": "3", "MINE": '"text"'}
    assert [delayed.get(name, job) for name in ("CHIRPA", "chirpold", "Owner", "ChirpNone")] == ["3", "4", None, None]


def test_a_job_asks_in_its_pace():
    pace = Pace()
    waits = [pace.wait_s(100.0) for _ in range(int(PACE_BURST) + 100)]
    assert waits[int(PACE_BURST) - 1] == 0
    assert waits[-1] == pytest.approx(0.2)
    assert Pace(left=0.0, at=100.0).wait_s(101.0) == 0


def test_numbers_of_files_are_used_again():
    files = OpenFiles(most=2)
    assert [files.add("a", "r"), files.add("b", "w")] == [3, 4]
    assert files.full
    del files.files[3]
    assert files.add("c", "r") == 3


# -- connections


class AccessPoint:
    """Files in memory."""

    def __init__(self):
        self.asked = []
        self.files = {"there": b"0123456789"}

    async def ask(self, verb, *arguments):
        self.asked.append((verb, *arguments))
        path = arguments[0]
        match verb:
            case "open":
                if "t" in arguments[1] or ("c" in arguments[1] and path not in self.files):
                    self.files[path] = b""
                if path not in self.files:
                    return Answer(Code.DOES_NOT_EXIST)
                return Answer(0, b"0 0 0 0 0 0 0 %d 0 0 0 0 0\n" % len(self.files[path]))
            case "stat":
                return Answer(0, b"0 0 0 0 0 0 0 %d 0 0 0 0 0\n" % len(self.files[path]))
            case "read":
                data = self.files[path][arguments[1] : arguments[1] + arguments[2]]
                return Answer(len(data), data)
            case "write":
                at, data = arguments[1], arguments[2]
                self.files[path] = self.files[path][:at] + data + self.files[path][at + len(data) :]
                return Answer(len(data))
        return Answer(0)


class Talk:
    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def say(self, data):
        self.writer.write(data)
        await self.writer.drain()
        return await asyncio.wait_for(self.reader.readline(), 20)

    async def over(self):
        return await asyncio.wait_for(self.reader.read(), 20)


@pytest.fixture
async def tasks():
    running = set()
    yield running
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


@pytest.fixture
async def server(tasks, monkeypatch):
    import structlog

    monkeypatch.setattr(chirp_session, "WRONG_S", 0.0)
    made = ChirpServer(structlog.get_logger(), lambda work, name: tasks.add(asyncio.create_task(work)))
    yield made
    await made.close()


@pytest.fixture
def access_point():
    return AccessPoint()


def job_of(access_point, rights=ALL, **attributes):
    told = []
    job = ChirpJob(
        ClassAd({"Iwd": "/home/alice", **attributes}),
        rights,
        DelayedUpdates(ChirpSettings()),
        access_point.ask,
        lambda: told.append(1),
    )
    return job, told


async def connect(server, job, **how):
    port, cookie = await server.admit(job, "127.0.0.1", **how)
    return port, cookie


@pytest.fixture
async def talk():
    """Connects; all connections are closed at the end."""
    talks = []

    async def connected(port, cookie=None):
        talks.append(Talk(*await asyncio.open_connection("127.0.0.1", port)))
        if cookie is not None:
            assert await talks[-1].say(f"cookie {cookie}\n".encode()) == b"0\n"
        return talks[-1]

    yield connected
    for one in talks:
        one.writer.close()
        with contextlib.suppress(OSError):
            await one.writer.wait_closed()


async def test_without_the_cookie_nothing_is_answered(server, access_point, talk):
    job, _ = job_of(access_point)
    port, cookie = await connect(server, job)
    stranger = await talk(port)
    assert await stranger.say(b"getfile there\n") == b"-1\n"
    assert await stranger.say(b"cookie " + cookie[:-1].encode() + b"\n") == b"-1\n"
    assert await stranger.say(b"cookie\n") == b"-1\n"
    assert await stranger.over() == b""
    known = await talk(port, cookie)
    server.dismiss(cookie)
    assert await known.say(b"version\n") == b"2\n"
    assert await (await talk(port)).say(f"cookie {cookie}\n".encode()) == b"-1\n"
    assert access_point.asked == []


async def test_a_second_job_has_the_same_port_and_another_cookie(server, access_point):
    (port, one), (again, other) = [await connect(server, job_of(access_point)[0]) for _ in range(2)]
    assert port == again
    assert one != other
    assert len(one) == 32


async def test_files_are_read_and_written_as_the_protocol_has_it(server, access_point, talk):
    job, _ = job_of(access_point)
    job_talk = await talk(*await connect(server, job))
    assert await job_talk.say(b"open there r 0\n") == b"3\n"
    assert (await job_talk.reader.readline()).split()[7] == b"10"
    assert await job_talk.say(b"read 3 4\n") == b"4\n"
    assert await job_talk.reader.readexactly(4) == b"0123"
    assert await job_talk.say(b"read 3 100\n") == b"6\n"
    assert await job_talk.reader.readexactly(6) == b"456789"
    assert await job_talk.say(b"lseek 3 -2 2\n") == b"8\n"
    assert await job_talk.say(b"pread 3 2 1\n") == b"2\n"
    assert await job_talk.reader.readexactly(2) == b"12"
    assert await job_talk.say(b"write 3 5\nhello") == b"-12\n"  # opened for reading: what came is no request
    assert await job_talk.say(b"close 3\n") == b"0\n"
    assert await job_talk.say(b"read 3 1\n") == b"-12\n"
    assert await job_talk.say(b"putfile made 420 6\n") == b"0\n"
    assert await job_talk.say(b"abc\ndf") == b"6\n"
    assert access_point.files["made"] == b"abc\ndf"
    assert await job_talk.say(b"getfile made\n") == b"6\n"
    assert await job_talk.reader.readexactly(6) == b"abc\ndf"
    assert await job_talk.say(b"getfile none\n") == b"-3\n"
    assert await job_talk.say(b"lookup x\n") == b"13\n"
    assert await job_talk.reader.readexactly(13) == b"/home/alice/x"
    assert await job_talk.say(b"constrain true\n") == b"-2\n"


async def test_much_goes_in_pieces_and_what_is_sent_before_the_end_is_done(server, access_point, talk, monkeypatch):
    monkeypatch.setattr(chirp_session, "PIECE_BYTES", 1000)
    job, _ = job_of(access_point)
    job_talk = await talk(*await connect(server, job))
    data = random.Random(1).randbytes(54321)
    job_talk.writer.write(b"putfile big 420 54321\n" + data)
    await job_talk.writer.drain()
    job_talk.writer.close()  # as HTCondor's client does, without a look at the second answer
    await server.finished(job, 20.0)
    assert access_point.files["big"] == data
    assert sum(verb == "write" for verb, *_ in access_point.asked) == 55


async def test_who_may_less_is_refused_and_the_connection_goes_on(server, access_point, talk):
    job, told = job_of(access_point, Rights(delayed=True), ChirpOld=7)
    job_talk = await talk(*await connect(server, job))
    for line in (b"getfile there\n", b"get_job_attr Owner\n", b"ulog x\n", b"write 3 4\nabcd", b"nonsense\n"):
        assert await job_talk.say(line) == b"-8\n"
    assert await job_talk.say(b"set_job_attr_delayed ChirpX 1\\ +\\ 1\n") == b"0\n"
    assert told == [1]
    assert await job_talk.say(b"get_job_attr_delayed ChirpX\n") == b"5\n"
    assert await job_talk.reader.readexactly(5) == b"1 + 1"
    assert await job_talk.say(b"get_job_attr_delayed ChirpOld\n") == b"1\n"
    assert access_point.asked == []


async def test_a_line_without_end_is_too_big_and_ends_the_connection(server, access_point, talk):
    job, _ = job_of(access_point)
    job_talk = await talk(*await connect(server, job))
    assert await job_talk.say(b"getfile " + b"x" * LINE_BYTES + b"\n") == b"-5\n"
    assert await job_talk.over() == b""


async def test_strangers_keep_nobody_out(server, access_point, talk, monkeypatch):
    monkeypatch.setattr(chirp_server, "MOST_STRANGERS", 3)
    job, _ = job_of(access_point)
    port, cookie = await connect(server, job)
    idle = [await talk(port) for _ in range(8)]
    assert await (await talk(port, cookie)).say(b"version\n") == b"2\n"
    assert await idle[0].over() == b""
    assert len(server._strangers) <= 3


async def test_one_job_has_so_many_connections(server, access_point, talk, monkeypatch):
    monkeypatch.setattr(chirp_server, "MOST_OF_A_JOB", 2)
    job, _ = job_of(access_point)
    port, cookie = await connect(server, job)
    kept = [await talk(port, cookie) for _ in range(2)]
    third = await talk(port, cookie)
    third.writer.write(b"version\n")
    assert await third.over() in (b"", b"2\n")
    assert await kept[0].say(b"version\n") == b"2\n"

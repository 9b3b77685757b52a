"""The spawner in C by itself: what it refuses to read, when it is not used, and how it is missed.

What it does with jobs is held by the tests of the fork server and of walls, which have it and Python's nannies in turn.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from services.startd import forkserver
from services.startd.forkserver import build, native
from services.startd.forkserver.client import ForkServer, SpawnFailed
from tests.nannies import knobs_of
from tests.spec import spec
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(not build.find_compiler(), reason="there is no C compiler here")

#: Every word that an order may have.
ORDER = {
    "op": "spawn",
    "run": "node1#1.0#1",
    "executable": "/bin/sh",
    "argv": ["sh", "-c", 'echo "ä\u20ac\U0001f600\udcff"', ""],
    "env": {"PATH": "/bin", "NAME": "x=y", "": "z"},
    "cwd": "/",
    "stdin": "",
    "stdout": "/tmp/out",
    "stderr": None,
    "append_stdout": True,
    "append_stderr": False,
    "umask": 0o22,
    "nice": 10,
    "limits": {"RLIMIT_CORE": 0, "RLIMIT_AS": 2**40, "RLIMIT_STACK": -1},
    "account": {"uid": 65534, "gid": 65534, "groups": [4, 5]},
    "dedicated": True,
    "tracking_gid": 0,
    "group": "condor_slot1",
    "lease": 123.5e2,
    "cores": [0, 1],
    "cgroup": {"unified": "/c2", "freezer": "/f", "memory": "/m", "join": ["/f", "/m"]},
    "mounts": {"scratch": "/s/d", "hide": "/s", "private": [[".private/tmp", "/tmp"]], "shm": 2**30, "ipc": True},
    "pid_namespace": True,
    "landlock": {"grants": [["w", "/s/d"], ["r", "/usr"]]},
    "capabilities": 0x3FFFFFFFFF,
    "no_new_privileges": True,
    "seccomp": {"namespaces": False, "others": True},
}

#: Each of it is one change of the order that is refused: where, and what is there then.
REFUSED = {
    "an unknown word": (("new_wall",), True),
    "an unknown word of mounts": (("mounts", "more"), 1),
    "an unknown word of seccomp": (("seccomp", "more"), 1),
    "an unknown word of the cgroup": (("cgroup", "more"), "x"),
    "an unknown limit": (("limits", "RLIMIT_NONE"), 1),
    "no arguments": (("argv",), []),
    "an empty name": (("argv", 0), ""),
    "an argument that is a number": (("argv", 1), 5),
    "an argument with a zero byte": (("argv", 1), "a\0b"),
    "a variable with a zero byte": (("env", "a"), "a\0b"),
    "a variable whose name has a zero byte": (("env", "a\0b"), "b"),
    "a variable whose name has =": (("env", "a=b"), "b"),
    "an environment that is a list": (("env",), []),
    "a directory with a zero byte": (("cwd",), "/\0"),
    "a directory that is a list": (("cwd",), []),
    "a flag that is a text": (("no_new_privileges",), "yes"),
    "a flag that is a number": (("pid_namespace",), 1),
    "capabilities that are negative": (("capabilities",), -1),
    "capabilities that are no number": (("capabilities",), "0"),
    "capabilities that are no whole number": (("capabilities",), 0.5),
    "a uid that is too large": (("account", "uid"), 2**32 - 1),
    "a uid that is negative": (("account", "uid"), -1),
    "a uid that is true": (("account", "uid"), True),
    "no uid": (("account", "uid"), None),
    "no groups": (("account", "groups"), None),
    "groups of texts": (("account", "groups"), ["adm"]),
    "an account that is a name": (("account",), "nobody"),
    "a grant of another use": (("landlock", "grants", 0), ["x", "/s"]),
    "a grant of one word": (("landlock", "grants", 0), ["w"]),
    "grants that are a text": (("landlock", "grants"), "/"),
    "landlock without grants": (("landlock",), {}),
    "landlock that is a flag": (("landlock",), True),
    "a filter that does not say all": (("seccomp",), {"others": True}),
    "a filter that is a flag": (("seccomp",), True),
    "mounts that are a list": (("mounts",), []),
    "private directories without a scratch directory": (("mounts", "scratch"), None),
    "a private directory of one word": (("mounts", "private", 0), ["/tmp"]),
    "a size below 0": (("mounts", "shm"), -1),
    "a limit that is a text": (("limits", "RLIMIT_CORE"), "0"),
    "a limit that is null": (("limits", "RLIMIT_CORE"), None),
    "a umask that is too large": (("umask",), 0o1000),
    "a core that is a text": (("cores",), ["0"]),
    "a core that no machine has": (("cores",), [10**6]),
    "a cgroup that is a text": (("cgroup",), "/sys/fs/cgroup/a"),
    "joins that are numbers": (("cgroup", "join"), [1]),
    "a whole number that is too large": (("nice",), 10**30),
}
#: No order, whatever reads it.
MALFORMED = (
    "", "nul", "{", "[]", "5", '"x"', "{}x", '{"a":1,}', '{"op":"spawn" "run":"x"}', '{"op":}', "{1:2}", '{"nice":01}',
    '{"nice":+1}', '{"nice":1.}', '{"nice":.5}', '{"nice":1e}', '{"nice":NaN}', '{"nice":-}', '{"cwd":"\\x"}',
    '{"cwd":"\\u12"}',
    '{"cwd":"\\ud800"}', '{"cwd":"\\ud800\\u0041"}', '{"cwd":"\\udc00"}', '{"cwd":"\n"}', '{"cwd":"\t"}',
    '{"cwd":"ä"}', '{"cwd":"', '{"cwd":"\\', "[" * 100, '{"cwd":' * 100, "[" * 100 + "]" * 100, '{"a\\\b":1}',
)  # fmt: skip


def changed(place: tuple[str | int, ...], value: object) -> dict[str, object]:
    order = json.loads(json.dumps(ORDER))
    found = order
    for key in place[:-1]:
        found = found[key]
    found[place[-1]] = value
    return order


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """Says of each order whether it would be obeyed; compiled so that every mistake with memory ends it."""
    program = tmp_path_factory.mktemp("spawner") / "roost-spawner"
    flags = ("-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
    assert build.compile_to(program, flags, ((),)) == ""

    def check(orders: list[bytes]) -> list[str]:
        data = b"".join(len(order).to_bytes(4, "big") + order for order in orders)
        done = subprocess.run([program, "check"], input=data, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        assert done.stderr == b""
        said = done.stdout.decode(errors="surrogateescape").splitlines()
        assert len(said) == len(orders)
        return said

    return check


def test_it_compiles_without_a_warning(tmp_path):
    assert build.compile_to(tmp_path / "roost-spawner", ("-Werror",)) == ""


def test_an_order_with_every_word_is_obeyed(checked):
    without = [{key: value for key, value in ORDER.items() if key != left_out} for left_out in ORDER]
    told = checked([json.dumps(order).encode() for order in [ORDER, *without]])
    assert told[0] == f"good 4 {b'sh'.hex()}"
    refused = [word for word, said in zip(ORDER, told[1:], strict=True) if not said.startswith("good")]
    assert refused == ["argv", "env"]


@spec("ISO-23")
def test_what_it_does_not_know_or_understand_is_refused(checked):
    told = checked([json.dumps(changed(*change)).encode() for change in REFUSED.values()])
    assert [name for name, said in zip(REFUSED, told, strict=True) if not said.startswith("refused ")] == []
    told = checked([text.encode() for text in MALFORMED])
    assert [text for text, said in zip(MALFORMED, told, strict=True) if not said.startswith("refused ")] == []


def test_a_word_that_is_there_twice_is_refused(checked):
    text = json.dumps(ORDER)[:-1]
    told = checked([f'{text},"capabilities":0}}'.encode(), f'{text},"landlock":null}}'.encode()])
    assert [said.startswith("refused ") for said in told] == [True, True]


def test_frames_that_are_none_are_refused():
    knobs_of("native")
    done = subprocess.run([build.PROGRAM, "check"], input=b"\xff\xff\xff\xffxx", capture_output=True, check=True)
    assert done.stdout == b"refused start these are no frames\n"


def test_whatever_is_done_to_an_order_it_is_read_as_python_reads_it_or_refused(checked):
    """No mistake with memory, and nothing is obeyed that Python takes for something else."""
    chance = random.Random(17)
    whole = json.dumps(ORDER).encode()
    words = [json.dumps(one).encode() for one in (*ORDER.values(), *ORDER, "\0", "\udc80", -1, 1e99, [[]], {"a": {}})]
    orders = []
    for _ in range(10_000):
        order = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(order) + 1)
            how = chance.randrange(5)
            if how == 0:
                del order[at : at + chance.randint(1, 30)]
            elif how == 1:
                order[at:at] = chance.choice(words)
            elif how == 2:
                order[at : at + 1] = bytes([chance.randrange(256)])
            elif how == 3:
                start = chance.randrange(len(order) + 1)
                order[at:at] = order[start : start + chance.randint(1, 60)]
            else:
                order[at:at] = chance.choice([b'"', b"\\", b"\\u", b"{", b"}", b"[", b"]", b",", b"0", b"\\u0000"])
        orders.append(bytes(order))
    obeyed = 0
    for order, said in zip(orders, checked(orders), strict=True):
        if said.startswith("good "):
            obeyed += 1
            read = json.loads(order)
            _, count, name = said.split(" ")
            assert (int(count), bytes.fromhex(name)) == (len(read["argv"]), os.fsencode(read["argv"][0])), order
            assert set(read) <= set(ORDER)
    assert 100 < obeyed < len(orders) / 2


# ---------------------------------------------------------------- when it is not used


def request(*argv, **fields):
    streams = {"stdin": "", "stdout": "", "stderr": ""}
    return {"executable": argv[0], "argv": list(argv), "env": {}, "cwd": "/"} | streams | fields


@pytest.fixture
async def server(tmp_path):
    knobs_of("native")
    server = ForkServer(tmp_path, orphan_s=600, now=time.time)
    await server.start()
    assert server.native, server.why_not
    yield server
    await server.stop(end_server=True)


async def test_where_it_is_not_wanted_nannies_are_pythons(tmp_path):
    server = ForkServer(tmp_path, orphan_s=600, now=time.time, native=False)
    await server.start()
    try:
        process = await server.spawn("one", request("/bin/sleep", "1000"))
        assert (server.native, server.why_not) == (False, "")
        assert "python" in psutil.Process(process.nanny).exe()
    finally:
        await server.stop(end_server=True)


@spec("ISO-23")
async def test_a_word_that_it_does_not_know_starts_nothing(tmp_path, server):
    with pytest.raises(SpawnFailed) as failed:
        await server.spawn("one", request("/bin/touch", str(tmp_path / "made"), a_wall_of_tomorrow=True))
    assert "a_wall_of_tomorrow" in failed.value.message
    assert not (tmp_path / "made").exists()
    await server.spawn("two", request("/bin/sh", "-c", "exit 5"))
    assert (await server.end_of("two")).status == 5 << 8


@spec("ISO-23")
async def test_when_it_is_killed_its_jobs_go_on_and_the_next_are_pythons(server):
    process = await server.spawn("one", request("/bin/sh", "-c", "sleep 1; exit 4"))
    assert os.readlink(f"/proc/{process.nanny}/exe") == str(build.PROGRAM)
    spawner = spawner_of(server)
    assert spawner.pid != process.nanny
    spawner.kill()
    for run in ("two", "three", "four"):
        await server.spawn(run, request("/bin/sh", "-c", "exit 6"))
        assert (await server.end_of(run)).status == 6 << 8
    assert (await server.end_of("one")).status == 4 << 8
    later = await server.spawn("five", request("/bin/sleep", "1000"))
    assert "python" in psutil.Process(later.nanny).exe()
    server._send({"op": "list"})
    await eventually(lambda: not server.native)
    assert server.why_not


def spawner_of(server: ForkServer) -> psutil.Process:
    """Nannies can not be told from it by name: they are younger."""
    children = [child for child in psutil.Process(server.pid).children() if child.exe() == str(build.PROGRAM)]
    return min(children, key=lambda child: (child.create_time(), child.pid))


async def test_it_ends_with_its_server(server):
    children = psutil.Process(server.pid).children(recursive=True)
    assert children
    os.kill(server.pid, signal.SIGKILL)
    await eventually(lambda: not any(child.is_running() for child in children))


def made_of(folder: Path, old: str, new: str) -> str:
    """A spawner of a changed source, which lies beside it."""
    source = build.SOURCE.read_text()
    assert source.count(old) == 1, old
    (folder / "spawner.c").write_text(source.replace(old, new))
    shutil.copy(build.HERE / "build.py", folder / "build.py")
    # It is run a few times only: the compiler need not make it fast.
    env = {**os.environ, "CFLAGS_SPAWNER": "-O0 -U_FORTIFY_SOURCE"}
    subprocess.run(["python3", "-I", folder / "build.py"], env=env, check=True)
    return str(folder / "roost-spawner")


#: A wall that is not built, and how the test at the start ends without it.
MISSING = {
    "no new privileges": (
        "if (order->no_new_privileges)\n        must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), \"walls\", \"prctl\");\n"
        "    if (order->filter < 0)\n        return;",
        "return;",
    ),
    "the filter": ("must(!prctl(PR_SET_SECCOMP, 2, &program, 0, 0), \"walls\", \"prctl(PR_SET_SECCOMP)\");", ""),
    "limits": ("must(!setrlimit((__rlimit_resource_t)order->limits[index].kind, &now), \"start\", \"setrlimit\");", ""),
    "a session": ("    setsid();\n    write_file(", "    write_file("),
    "closed descriptors": ("above = dup3(above, CHANNEL, O_CLOEXEC);", "above = dup2(above, CHANNEL);"),
}  # fmt: skip


@spec("ISO-23")
@pytest.mark.parametrize("what", MISSING)
def test_one_that_lacks_a_wall_does_not_pass_its_test(tmp_path, what):
    program = made_of(tmp_path, *MISSING[what])
    with pytest.raises(native.NoSpawner, match="its test failed"):
        native.start(program)


@pytest.mark.skipif(os.geteuid() != 0, reason="the bounding set is root's to change")
def test_nor_does_one_that_leaves_the_bounding_set(tmp_path):
    program = made_of(tmp_path, "prctl(PR_CAPBSET_DROP, number, 0, 0, 0))", "1)")
    with pytest.raises(native.NoSpawner, match="its test failed"):
        native.start(program)


@spec("ISO-23")
def test_one_of_another_source_or_for_other_walls_is_not_used(tmp_path, monkeypatch):
    program = made_of(tmp_path, "#define PROBED 42", "#define PROBED 42 ")
    native.start(program).close()
    with monkeypatch.context() as patch:
        patch.setattr(native, "WALLS", forkserver.WALLS + 1)
        with pytest.raises(native.NoSpawner, match="another source"):
            native.start(program)
    (tmp_path / "spawner.c").write_text("int main() {}")
    with pytest.raises(native.NoSpawner, match="another source"):
        native.start(program)
    (tmp_path / "spawner.c").unlink()
    with pytest.raises(native.NoSpawner, match=r"spawner\.c"):
        native.start(program)


@pytest.mark.parametrize("script", ["exit 0", "exec sleep 1000", "echo hello >&3; exec sleep 1000"])
def test_a_program_that_is_none_is_not_used(tmp_path, monkeypatch, script):
    monkeypatch.setattr(native, "PATIENCE_S", 0.2)
    shutil.copy(build.SOURCE, tmp_path)
    program = tmp_path / "roost-spawner"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(native.NoSpawner):
        native.start(str(program))
    with pytest.raises(native.NoSpawner):
        native.start(str(tmp_path / "no-such-program"))

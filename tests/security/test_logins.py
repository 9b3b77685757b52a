"""Users of the gateway's own machine need no token: the kernel says who has connected. Who can not be known so is
nobody: accounts that there are not, processes of other user namespaces, and jobs."""

import contextlib
import http.client
import json
import os
import pwd
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from roost import AsyncClient, Client
from roost.errors import ClientError
from services.gateway.auth.local_peer import confined, peer_of
from services.gateway.local_socket import LocalSocket
from shared.local_sockets import connect_local
from tests import warm
from tests.integration.inside import InsidePool
from tests.waiting import wait_until

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
#: Asks a door over a socket, and says the status and the answer. Standard library only: other users can read no more.
ASK = """
import ctypes, http.client, json, os, socket, sys
path, door, how = sys.argv[1:4]
if how == "confined":
    assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0
if how == "namespace":
    assert ctypes.CDLL(None).unshare(0x10000000) == 0, "no user namespaces"
class Local(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
asked = Local("localhost")
asked.request("GET", door)
answer = asked.getresponse()
print(json.dumps([answer.status, json.loads(answer.read())]))
"""


@pytest.fixture(scope="module")
def place():
    with tempfile.TemporaryDirectory(prefix="roost-door-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def pool(tmp_path_factory, place):
    inside = InsidePool(
        tmp_path_factory.mktemp("pool"), ROOST_GATEWAY_SOCKET=str(place / "gateway.socket"), UID_DOMAIN="pool.example"
    )
    yield inside
    inside.close()


def ask_as(place, uid=None, door="/v1/whoami", how="plain"):
    """(status, answer) of a door, asked by another account, or in a way that leaves a process less than others have."""
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
    done = subprocess.run(
        [python, "-I", "-c", ASK, str(place / "gateway.socket"), door, how],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="/",
        **({"user": uid, "group": uid, "extra_groups": []} if uid is not None else {}),
    )
    if "no user namespaces" in done.stderr:
        pytest.skip("this machine lets nobody make user namespaces")
    assert done.returncode == 0, done.stderr
    return tuple(json.loads(done.stdout))


def test_the_pools_own_account_is_its_administrator(pool, place):
    status, me = ask_as(place)
    assert status == 200
    assert me["user"] == f"{pwd.getpwuid(os.geteuid()).pw_name}@pool.example"
    assert (me["level"], me["method"]) == ("ADMINISTRATOR", "FS")


def test_the_socket_is_everybodys_and_the_directory_is_not(pool, place):
    assert (place / "gateway.socket").stat().st_mode & 0o777 == 0o666
    assert place.stat().st_mode & 0o777 == 0o755


@ROOT
def test_another_account_is_itself_and_no_administrator(pool, place):
    daemon = pwd.getpwnam("daemon")
    status, me = ask_as(place, daemon.pw_uid)
    assert (status, me["user"], me["level"]) == (200, "daemon@pool.example", "WRITE")
    status, refused = ask_as(place, daemon.pw_uid, "/v1/tokens")
    assert status == 403
    assert "tokens needs ADMINISTRATOR, you have, by FS, WRITE" in refused["error"]["message"]


@ROOT
def test_an_account_that_there_is_not_is_refused(pool, place):
    status, refused = ask_as(place, 3_999_999)
    assert status == 401
    assert "no account with uid 3999999" in refused["error"]["message"]


@ROOT
def test_nobody_of_another_user_namespace_is_nobody(pool, place):
    """The kernel shows such an account as the one that stands for all that it can not show."""
    status, refused = ask_as(place, 65534)
    assert status == 401
    assert "another user namespace" in refused["error"]["message"]


@ROOT
def test_root_of_a_user_namespace_is_not_root(pool, place):
    daemon = pwd.getpwnam("daemon")
    status, answer = ask_as(place, daemon.pw_uid, how="namespace")
    assert status == 401 or answer["user"] == "daemon@pool.example"


def test_a_process_without_new_privileges_sends_a_token(pool, place):
    status, refused = ask_as(place, how="confined")
    assert status == 401
    assert "no-new-privileges" in refused["error"]["message"]


@pytest.mark.parametrize("text", ["", "Name:\tx\n", "NoNewPrivs:\t1\n", "NoNewPrivs:\t\n"])
def test_what_does_not_say_that_it_is_free_is_confined(text):
    assert confined(text)


def test_a_process_that_has_ended_is_nobody():
    """Its number may be another's by now."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        path = f"{folder}/s"
        listening.bind(path)
        listening.listen()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException), socket.socket(socket.AF_UNIX) as asking:
                asking.connect(path)
            os._exit(0)
        taken, _ = listening.accept()
        os.waitpid(child, 0)
        with taken:
            found = peer_of(taken)
        assert found.uid is None
        assert "has ended" in found.why


def test_a_token_counts_over_the_socket_too_and_a_bad_one_is_not_forgiven(pool, place):
    class Local(http.client.HTTPConnection):
        def connect(self):
            self.sock = connect_local(str(place / "gateway.socket"), 30)

    def asked(token):
        connection = Local("localhost")
        with contextlib.closing(connection):
            connection.request("GET", "/v1/whoami", headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    with pool.client() as client:
        token = client.create_token("bob@elsewhere", "READ")
    assert asked(token)[1]["user"] == "bob@elsewhere"
    assert asked("wrong")[0] == 401


def test_headers_do_not_make_a_local_user(pool):
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-Ip", "Roost.Local_peer"):
        assert pool.ask("GET", "/v1/whoami", token=None, headers={header: "local uid 0"})[0] == 401


def test_a_job_gets_nothing_by_the_socket(pool, place, tmp_path):
    """Though it may run as the account that owns the pool."""
    script = tmp_path / "ask.py"
    script.write_text(ASK)
    (tmp_path / "job.sub").write_text(
        f"executable = /usr/bin/env\ntransfer_executable = false\n"
        f"arguments = python3 ask.py {place}/gateway.socket /v1/tokens plain\n"
        "transfer_input_files = ask.py\noutput = out\nerror = err\nshould_transfer_files = YES\nqueue\n"
    )
    said = warm.run(
        [sys.executable, "-m", "roost", "submit", "job.sub"],
        cwd=tmp_path,
        env=pool.environment(),
        check=True,
    )
    assert "submitted" in said.stdout
    output = tmp_path / "out"
    wait_until(lambda: output.exists() and output.stat().st_size, what="the job's output")
    status, answer = json.loads(output.read_text())
    assert status == 401, answer


# --- the command and the libraries


@pytest.fixture
def alone(tmp_path_factory, monkeypatch):
    """A personal pool, and an environment that names neither address nor token."""
    directory = tmp_path_factory.mktemp("a-directory-with-a-long-name" + "x" * 90)
    inside = InsidePool(directory)
    for name in ("ROOST_URL", "ROOST_TOKEN", "ROOST_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROOST_POOL_DIR", str(directory))
    yield inside
    inside.close()


async def test_clients_find_the_socket_by_themselves(alone, monkeypatch):
    with Client() as client:
        assert client.whoami()["method"] == "FS"
    async with AsyncClient() as other:
        assert (await other.whoami())["method"] == "FS"
        assert (await other.whoami())["level"] == "ADMINISTRATOR"
    assert "by FS" in alone.roost("ping")
    # Who names a token uses it.
    with Client(token=alone.token) as client:
        assert client.whoami()["method"] == "TOKEN"
    # Who says they have none comes by the socket too, whatever the environment has, or with none.
    monkeypatch.setenv("ROOST_TOKEN", alone.token)
    with Client() as client:
        assert client.whoami()["method"] == "TOKEN"
    with Client(token="") as client:
        assert client.whoami()["method"] == "FS"
    async with AsyncClient(token="") as other:
        assert (await other.whoami())["method"] == "FS"
    with Client(alone.url, "") as client, pytest.raises(ClientError, match="no valid token"):
        client.whoami()
    monkeypatch.delenv("ROOST_TOKEN")
    # Without a socket the token's file does as before.
    os.unlink(alone.directory / "gateway.socket")
    with Client() as client:
        assert client.whoami()["method"] == "TOKEN"
    with Client(token="") as client, pytest.raises(ClientError, match="no valid token"):
        client.whoami()


# --- the socket's place


class Told:
    def warning(self, *_, **__):
        pass


def test_a_socket_is_not_made_where_others_could_take_its_place(tmp_path):
    tmp_path.chmod(0o777)
    made = LocalSocket(tmp_path / "s", Told())
    assert "no others' to write" in made.open()
    tmp_path.chmod(0o755)
    (tmp_path / "s").write_text("something")
    assert "something else has this name" in made.open()
    assert (tmp_path / "s").read_text() == "something"


def test_what_a_gateway_left_is_replaced_and_anothers_is_not_removed(tmp_path):
    first, second = LocalSocket(tmp_path / "s", Told()), LocalSocket(tmp_path / "s", Told())
    assert first.open() == second.open() == ""
    first.close()
    assert (tmp_path / "s").exists()
    second.close()
    assert not (tmp_path / "s").exists()

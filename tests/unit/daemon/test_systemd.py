import asyncio
import os
import socket

import pytest

from shared.daemon.systemd import Systemd
from tests.waiting import eventually


@pytest.fixture
def heard(tmp_path):
    """A socket as systemd has one: its address, and what it was told."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)

        def take() -> list[str]:
            found = []
            try:
                while True:
                    found += listening.recv(4096).decode().splitlines()
            except BlockingIOError:
                return found

        yield str(tmp_path / "notify"), take


async def test_it_hears_that_the_loop_turns_and_what_is_waited_for(heard):
    address, take = heard
    environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000", "WATCHDOG_PID": str(os.getpid()), "A": "b"}
    systemd = Systemd.of(environment)
    assert environment == {"A": "b"}  # jobs are started with what is left
    reasons, told = ["bus: a\nconnection"], []
    telling = asyncio.create_task(systemd.keep_telling(lambda: "; ".join(reasons)))

    async def comes(line):
        await eventually(lambda: told.extend(take()) or line in told, what=line)

    await comes("STATUS=waits for bus: a connection")
    reasons.clear()
    await comes("STATUS=waits for its setup")
    systemd.ready()
    await comes("STATUS=does its work")
    before = told.count("WATCHDOG=1")
    await eventually(lambda: told.extend(take()) or told.count("WATCHDOG=1") > before, what="another sign of life")
    assert told.count("READY=1") == 1
    assert told.count("STATUS=does its work") == 1
    systemd.stopping()
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)
    assert take()[-1] == "STOPPING=1"


@pytest.mark.parametrize(
    "environment",
    [
        {"WATCHDOG_USEC": "x"},
        {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},  # meant for another process
        {},
    ],
)
async def test_a_watchdog_that_is_not_ours_hears_nothing(heard, environment):
    address, take = heard
    systemd = Systemd.of({"NOTIFY_SOCKET": address, **environment})
    telling = asyncio.create_task(systemd.keep_telling(lambda: ""))
    systemd.ready()
    told = []
    await eventually(lambda: told.extend(take()) or "READY=1" in told, what="READY=1")
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)
    assert "WATCHDOG=1" not in told


async def test_without_systemd_nothing_is_said_and_nothing_fails(tmp_path):
    await Systemd().keep_telling(lambda: "never asked")
    Systemd(str(tmp_path / "nobody")).ready()
    Systemd("@nobody-listens-here").stopping()

"""Sends metrics to Ganglia, as packets over UDP or by the gmetric command, and asks gstat which hosts it watches."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import shlex
import shutil
import socket
from collections.abc import Sequence
from typing import Any, Final

from services.monitor.core import gmond
from services.monitor.core.gmond import Channel, hosts_of, is_known
from services.monitor.core.metrics import Metric
from shared.daemon.context import Context
from shared.errors import RetryableError
from shared.subprocess_runner import ProgramFailed, clean_environment, run

#: Seconds that a command may take.
_PATIENCE_S: Final = 20.0
#: What metrics are is said again so often, seconds: a gmond that was started again does not know it any more.
_DESCRIBE_S: Final = 300.0
#: Packets in a row, and the pause behind them, seconds: gmond's socket must not overflow.
_BURST, _PAUSE_S = 50, 0.01
#: For the address of one machine, seconds.
_LOOKUP_S: Final = 3.0
#: gmetric commands, or addresses asked for, at a time.
_AT_A_TIME: Final = 4
#: Addresses of machines are asked for again so often, seconds.
_RESOLVE_S: Final = 3600.0
#: Addresses that are remembered: machines come and go.
_MOST_ADDRESSES: Final = 100_000


class GangliaUnavailable(RetryableError):
    """A command failed, or a channel can not be used."""


class Ganglia:
    """The connection to one Ganglia."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.hosts: frozenset[str] = frozenset()  # that Ganglia watches, as far as known
        self.sent = self.failed = 0
        self._described: dict[tuple[str, str], tuple[float, bytes]] = {}
        self._addresses: dict[str, tuple[float, str]] = {}

    async def look(self, command: str) -> None:
        """Learn whom Ganglia watches. Raises GangliaUnavailable; who was known stays known then."""
        ended = await self._run(_words(command, "GANGLIA_GSTAT_COMMAND"))
        self.hosts = hosts_of(ended)

    async def send(
        self, metrics: Sequence[Metric], channels: Sequence[Channel], gmetric: str, interval: int, *, all_hosts: bool
    ) -> None:
        """Send what is about hosts that Ganglia watches, or about all (MON-14). gmetric: a command to do it with; "":
        packets to the channels. Raises GangliaUnavailable."""
        chosen = [one for one in metrics if all_hosts or is_known(one, self.hosts)]
        hosts = await self._hosts(chosen)
        tmax = 2 * interval
        if gmetric:
            await self._by_command(gmetric, chosen, hosts, tmax)
            return
        now = self.context.clock.monotonic()
        data: list[bytes] = []
        if all_hosts:
            for machine, host in hosts.items():
                if machine.lower() not in self.hosts:
                    data += gmond.heartbeat_packets(host)
        for one in chosen:
            host = hosts[one.machine]
            described = gmond.description_packet(one, host, tmax)
            said_at, said = self._described.get((host, one.name), (0.0, b""))
            if said != described or now - said_at > _DESCRIBE_S:
                data.append(described)
                self._described[host, one.name] = (now, described)
            data.append(gmond.value_packet(one, host))
        if len(self._described) > 2 * len(chosen) + 1000:
            self._described.clear()  # of machines that are gone
        await self._packets(data, channels)

    async def _packets(self, data: Sequence[bytes], channels: Sequence[Channel]) -> None:
        loop = asyncio.get_running_loop()
        problems = []
        for channel in channels:
            try:
                found = await loop.getaddrinfo(channel.host, channel.port, type=socket.SOCK_DGRAM)
                family, kind, protocol, _, address = found[0]
                with socket.socket(family, kind, protocol) as out:
                    out.setblocking(False)
                    if family == socket.AF_INET and ipaddress.ip_address(address[0]).is_multicast:
                        out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, channel.ttl)
                    for place, packet in enumerate(data, 1):
                        await self._packet(out, packet, address)
                        if place % _BURST == 0:
                            await self.context.clock.sleep(_PAUSE_S)
            except OSError as error:
                problems.append(f"{channel.host}:{channel.port}: {error}")
        if problems:
            self.failed += 1
            self._described.clear()
            raise GangliaUnavailable("; ".join(problems))

    async def _packet(self, out: socket.socket, packet: bytes, address: Any) -> None:
        """Not by the loop's own sock_sendto, which uvloop does not have."""
        while True:
            try:
                out.sendto(packet, address)
                self.sent += 1
            except BlockingIOError:  # the network card is behind
                await self.context.clock.sleep(_PAUSE_S)
                continue
            except ConnectionError:
                pass  # nobody listens there: the next pass may find somebody
            return

    async def _by_command(self, gmetric: str, metrics: Sequence[Metric], hosts: dict[str, str], tmax: int) -> None:
        words = _words(gmetric, "GANGLIA_GMETRIC")
        gate = asyncio.Semaphore(_AT_A_TIME)

        async def one(metric: Metric) -> None:
            async with gate:
                await self._run([*words, *gmetric_options(metric, hosts[metric.machine], tmax)])
                self.sent += 1

        if not metrics:
            return
        await one(metrics[0])  # shows whether it works at all: not 10,000 failures
        ended = await asyncio.gather(*map(one, metrics[1:]), return_exceptions=True)
        failures = [error for error in ended if isinstance(error, BaseException)]
        if failures:
            self.failed += 1
            raise GangliaUnavailable(f"{len(failures)} of {len(metrics)} metrics: {failures[0]}") from failures[0]

    async def _run(self, words: Sequence[str]) -> str:
        try:
            ended = await run(words, env=clean_environment(os.environ), timeout_s=_PATIENCE_S)
        except ProgramFailed as error:
            raise GangliaUnavailable(str(error)) from error
        if ended.timed_out:
            raise GangliaUnavailable(f"{words[0]} took longer than {_PATIENCE_S:g} s")
        if ended.exit_code != 0:
            said = (ended.stderr or ended.stdout).decode(errors="replace").strip()[:200]
            raise GangliaUnavailable(f"{words[0]} ended with {ended.exit_code or ended.exit_signal}: {said}")
        return ended.stdout.decode(errors="replace")

    async def _hosts(self, metrics: Sequence[Metric]) -> dict[str, str]:
        """By machine, `address:name` as gmond has hosts."""
        machines = {one.machine: one for one in reversed(metrics)}
        gate = asyncio.Semaphore(_AT_A_TIME)

        async def spoofed(metric: Metric) -> str:
            async with gate:
                return await self._spoofed(metric)

        return dict(zip(machines, await asyncio.gather(*map(spoofed, machines.values())), strict=True))

    async def _spoofed(self, metric: Metric) -> str:
        machine = metric.machine.replace(":", "_")
        if metric.ip:
            return f"{metric.ip}:{machine}"
        now = self.context.clock.monotonic()
        asked_at, address = self._addresses.get(machine, (0.0, ""))
        if not address or now - asked_at > _RESOLVE_S:
            try:
                async with asyncio.timeout(_LOOKUP_S):
                    found = await asyncio.get_running_loop().getaddrinfo(machine, None, family=socket.AF_INET)
                address = str(found[0][4][0])
            except (OSError, UnicodeError):  # TimeoutError is one; and a name that no host can have
                address = machine  # any text does, as long as it is this machine's own
            self._addresses[machine] = (now, address)
            if len(self._addresses) > _MOST_ADDRESSES:
                self._addresses.pop(next(iter(self._addresses)))
        return f"{address}:{machine}"


def gmetric_options(metric: Metric, host: str, tmax: int) -> list[str]:
    """What gmetric is told."""
    slope = "derivative" if metric.derivative else "zero" if metric.type == "string" else "both"
    found = [f"--name={metric.name}", f"--value={gmond.as_text(metric)}", f"--type={metric.type}"]
    found += [f"--units={metric.units}", f"--slope={slope}", f"--tmax={tmax}", f"--dmax={metric.lifetime}"]
    found += [f"--group={metric.group}", f"--desc={metric.desc}", f"--title={metric.title}", f"--spoof={host}"]
    return [*found, f"--cluster={metric.cluster}"] if metric.cluster else found


def _words(command: str, knob: str) -> list[str]:
    """The words of a command, with the path of its program. Raises GangliaUnavailable."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise GangliaUnavailable(f"{knob}: {error}") from error
    if not words:
        raise GangliaUnavailable(f"{knob} is empty")
    path = shutil.which(words[0])
    if path is None:
        raise GangliaUnavailable(f"{knob}: there is no program {words[0]}")
    return [path, *words[1:]]

"""Finds out how Linux can put this machine to sleep, and does so.

Everything lies under `root`, so tests have a tree of their own: no machine of tests can sleep.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.startd.core.machine import power_states
from services.startd.core.machine.detected import WOLINFO, Wol, parse_wolinfo, wolinfo_query
from services.startd.core.machine.power_states import Level, Means
from shared.errors import RoostError
from shared.subprocess_runner import ProgramFailed, clean_environment, run

#: For a program that only tells what is possible, seconds.
ASK_S: Final = 30.0
#: For one that puts the machine to sleep, of time in which the machine is awake: it returns when the machine wakes.
ENTER_S: Final = 600.0
_SIOCETHTOOL: Final = 0x8946
_IFREQ: Final = struct.Struct("16sP16x")
#: An interface's name with its zero byte.
_LONGEST_NAME: Final = 16


class StayedAwake(RoostError):
    """The machine could not be put to sleep: why."""


@dataclass(slots=True)
class PowerSwitch:
    """plugin: HIBERNATION_PLUGIN with its arguments, which is asked instead of the machine."""

    root: Path = Path("/")
    wish: str = ""  # LINUX_HIBERNATION_METHOD
    plugin: Sequence[str] = ()

    async def means(self) -> Means:
        """What there is. Takes as long as the programs that are asked."""
        if self.plugin:
            return await self._means_of_plugin()
        found = {
            power_states.PM_UTILS: await self._pm_levels(),
            power_states.SYS: self._sys_levels(),
            power_states.PROC: power_states.proc_levels(self._read(power_states.PROC_SLEEP)),
        }
        if os.access(self.root / power_states.POWER_OFF, os.X_OK):
            # Whatever else it can, it can be switched off; but not by itself: a method is what management stands on.
            found = {method: levels | {Level.S5} if levels else levels for method, levels in found.items()}
        return power_states.choose(found, self.wish)

    async def enter(self, means: Means, level: Level) -> None:
        """Put the machine into this state. Returns when it is awake again, or (S5, and some suspending programs) when
        it is about to sleep. Raises StayedAwake."""
        try:
            if self.plugin:
                await self._run([*self.plugin, "set", level.name], ENTER_S)
                return
            for step in power_states.steps(means.method, level):
                if step.text:
                    # In a thread: writing to /sys/power/state ends when the machine wakes.
                    await asyncio.to_thread(_write, self.root / step.path, step.text)
                else:
                    await self._run([str(self.root / step.path)], ENTER_S)
        except ValueError as error:
            raise StayedAwake(str(error)) from error
        except OSError as error:
            raise StayedAwake(f"{error.filename}: {error.strerror}") from error

    # -- how

    async def _means_of_plugin(self) -> Means:
        program = self.plugin[0]
        try:
            ended = await run([*self.plugin, "ad"], env=clean_environment(os.environ), timeout_s=ASK_S)
        except ProgramFailed as error:
            return Means(reason=f"HIBERNATION_PLUGIN: {error}")
        if not ended.good:
            return Means(reason=f"HIBERNATION_PLUGIN: {program} ad: {ended}")
        return power_states.of_plugin(program, ended.stdout.decode("utf-8", "replace"))

    async def _pm_levels(self) -> frozenset[Level]:
        check = self.root / power_states.PM_CHECK
        if not os.access(check, os.X_OK):
            return frozenset()
        found = set()
        for level, question in power_states.PM_QUESTIONS.items():
            try:
                ended = await run([str(check), question], env=clean_environment(os.environ), timeout_s=ASK_S)
            except ProgramFailed:
                continue
            if ended.good:
                found.add(level)
        return frozenset(found)

    def _sys_levels(self) -> frozenset[Level]:
        return power_states.sys_levels(self._read(power_states.SYS_STATE), self._read(power_states.SYS_DISK))

    def _read(self, name: str) -> str:
        """A file that can be written too, else there is nothing to be done with it; "": there is none."""
        path = self.root / name
        try:
            return path.read_text() if os.access(path, os.W_OK) else ""
        except (OSError, UnicodeDecodeError):
            return ""

    async def _run(self, argv: Sequence[str], timeout_s: float) -> None:
        try:
            ended = await run(argv, env=clean_environment(os.environ), timeout_s=timeout_s)
        except ProgramFailed as error:
            raise StayedAwake(str(error)) from error
        if not ended.good:
            said = ended.stderr.decode("utf-8", "replace").strip()[-400:]
            raise StayedAwake(f"{' '.join(argv)}: {ended}" + (f": {said}" if said else ""))


def _write(path: Path, text: str) -> None:
    # One write, as the kernel wants it, and no new file where there is none.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)


def wake_on_lan(interface: str) -> Wol | None:
    """What the kernel says of an interface; None where it does not say (it tells root only)."""
    name = interface.encode()
    if not name or len(name) >= _LONGEST_NAME:
        return None
    answer = ctypes.create_string_buffer(wolinfo_query(), WOLINFO.size)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            fcntl.ioctl(asking, _SIOCETHTOOL, _IFREQ.pack(name, ctypes.addressof(answer)))
        return parse_wolinfo(answer.raw)
    except (OSError, struct.error):
        return None

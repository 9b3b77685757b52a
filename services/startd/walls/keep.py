"""The walls as a part of the startd: the warden for everybody, and what claims that end leave behind."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from services.startd.book.answers import Changes
from services.startd.parts import Inside, Part
from services.startd.sandbox import directories
from services.startd.walls import cgroup_base, ground
from services.startd.walls.cgroup_base import Hierarchies
from services.startd.walls.cgroups import Cgroups
from services.startd.walls.disk import Disks
from services.startd.walls.isolation import Ground
from services.startd.walls.limits import group_name
from services.startd.walls.warden import Warden

if TYPE_CHECKING:
    from services.startd.starter.run import Run


def no_walls(inside: Inside) -> Warden:
    """For a startd whose launchers need none, or that has not looked yet."""
    return Warden(
        inside.settings.walls,
        Ground(root=False, mounts=False, pid_namespaces=False),
        Cgroups(Hierarchies(), ""),
        Disks(inside.settings.walls.disk, inside.context.execute, None, able=False),
        execute=inside.context.execute,
        hostname=inside.detected.hostname,
        find=ground.find_login,
        warn=inside.context.log.warning,
    )


def make_warden(inside: Inside) -> Warden:
    """Look at the machine and make what it allows. Blocking, once."""
    rules, log = inside.settings.walls, inside.context.log
    grounds = ground.look(rules.hidden)
    hierarchies = cgroup_base.prepare(rules.base_cgroup if grounds.root else "", ground.mountinfo())
    execute, hostname = inside.context.execute, inside.detected.hostname
    if grounds.root and not hierarchies:
        log.warning("no_cgroups", reason=hierarchies.trouble)
    if not grounds.root:
        ground.close_to_own_account()
        if rules.tracking_gids or rules.pid_namespaces:
            log.warning("walls_need_root", knobs="USE_GID_PROCESS_TRACKING, USE_PID_NAMESPACES")
    disks = Disks(rules.disk, execute, inside.fork_server, able=grounds.mounts)
    if rules.disk.enforce and not disks.usable:
        log.warning("disk_limits_by_measuring", reason=disks.trouble)
    return Warden(
        rules,
        grounds,
        Cgroups(hierarchies, group_name(str(execute), "", hostname)),
        disks,
        execute=execute,
        hostname=hostname,
        find=ground.find_login,
        warn=log.warning,
    )


class Walls(Part):
    async def setup(self) -> None:
        inside = self.inside
        for run, process in inside.fork_server.running.items():
            inside.warden.adopt(run, process.group, process.tracking_gid)
        inside.warden.sweep()
        kept = {record["scratch"] for record in inside.ledger.journal.load("runs").values()}
        try:
            await inside.warden.disks.adopt(directories.prefix(inside.name), kept)
        except OSError as error:
            inside.context.log.warning("volumes_not_removed", reason=str(error))

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"disk-limits": self._watch_disks()} if self.inside.settings.walls.disk.enforce else {}

    async def _watch_disks(self) -> None:
        """Measuring takes as long as it takes: it may not be most of what this machine does."""
        inside = self.inside
        clock = inside.context.clock
        while True:
            began = clock.monotonic()
            for run in await inside.warden.look_at_disks():
                await inside.launchers["process"].kill(run)
            took = clock.monotonic() - began
            await clock.sleep(max(inside.warden.rules.disk_interval, 10 * took))

    def run_started(self, run: Run) -> None:
        slot = self.inside.book.slots.get(run.record.slot)
        disk = int(slot.total.get("Disk", 0)) if slot is not None else 0
        scratch = self.inside.context.execute / run.record.scratch
        self.inside.warden.recall(run.record.name, scratch, run.memory_mib, disk)

    def on_changes(self, changes: Changes) -> None:
        warden = self.inside.warden
        for ended in changes.ended:
            warden.leave(ended.claim.slot)
        for slot in changes.gone:
            warden.leave(slot)

    def reread(self) -> None:
        self.inside.warden.reread(self.inside.settings.walls)

    async def close(self) -> None:
        self.inside.warden.close()

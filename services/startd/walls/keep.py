"""The walls as a part of the startd: the warden for everybody, and what claims that end leave behind."""

from __future__ import annotations

from services.startd.book.answers import Changes
from services.startd.parts import Inside, Part
from services.startd.walls import cgroup_base, ground
from services.startd.walls.cgroup_base import Hierarchies
from services.startd.walls.cgroups import Cgroups
from services.startd.walls.isolation import Ground
from services.startd.walls.limits import group_name
from services.startd.walls.warden import Warden


def no_walls(inside: Inside) -> Warden:
    """For a startd whose launchers need none, or that has not looked yet."""
    return Warden(
        inside.settings.walls,
        Ground(root=False, mounts=False, pid_namespaces=False),
        Cgroups(Hierarchies(), ""),
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
    return Warden(
        rules,
        grounds,
        Cgroups(hierarchies, group_name(str(execute), "", hostname)),
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

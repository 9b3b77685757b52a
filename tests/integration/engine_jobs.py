"""Jobs on a container engine, as a startd of this process's account runs them; prints what became of each as JSON:

python -m tests.integration.engine_jobs PLAN
"""

import asyncio
import contextlib
import json
import os
import sys
import time
import traceback
from pathlib import Path

import docker

from services.startd.forkserver.processes import descendants_of
from services.startd.isolation.host_capabilities import threads
from shared.messages.claims import DeactivateClaim
from tests.containers.rootless import API, IMAGE
from tests.integration.container_jobs import (
    PATIENCE_S,
    containers,
    end_of,
    launcher,
    machine,
    running_pool,
    start,
    told,
    up,
)
from tests.startd_pool import Endpoint
from tests.waiting import eventually

PROCESSES = 40
AGAIN = 5

WALLS = """
id -u; grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status | tr -d '\\t'; cat data; echo bad >&2
echo x > made; ulimit -n; exit 3
"""
OLD, NEW = b"planted-credential-1a9f\n", b"planted-credential-2b7e\n"
CREDENTIALS = """
cat $_CONDOR_CREDS/box.use; stat -f -c %T $_CONDOR_CREDS; stat -c %a $_CONDOR_CREDS/box.use
touch $_CONDOR_CREDS/x 2>/dev/null && echo wrote; echo x > seen
until grep -q 2b7e $_CONDOR_CREDS/box.use; do sleep 0.05; done; cat $_CONDOR_CREDS/box.use
"""
#: What can not be started.
REFUSED = {
    "no program": {"cmd": "/no/such/program", "TransferExecutable": False},
    "no image": {"DockerImage": "roost.invalid/x", "DockerPullPolicy": "never"},
    "no name": {"DockerImage": "Not A Name"},
    "no network": {"DockerNetworkType": "nowhere"},
}


def exit_of(end) -> dict:
    return {"reason": end.exit.reason, "code": end.exit.exit_code, "hold": end.exit.hold_code, "why": end.exit.message}


class Jobs:
    """found: what became of them. client: the engine's, as the helpers of container jobs want it."""

    def __init__(self, pool, files, client) -> None:
        self.pool = pool
        self.files = files
        self.client = client
        self.found = {}

    async def job(self, text=None, **attrs):
        return await start(self.pool, self.files, text, **({"DockerImage": IMAGE} | attrs))

    async def end_of(self, activation) -> dict:
        return exit_of(await end_of(self.pool, activation))

    async def deactivate(self, activation, granted, why, how):
        await self.pool.call(
            DeactivateClaim(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, why=why, how=how)
        )

    async def ad(self):
        ad = machine(self.pool)
        names = ("HasDocker", "DockerEngine", "DockerRootless", "DockerVersion", "DockerLacksLimits")
        self.found["ad"] = {name: value for name in names if isinstance(value := ad.eval(name), bool | str)}
        self.found["address"] = launcher(self.pool)._engine.address

    async def walls(self):
        """What a job may do, what it writes, and that nothing is left of it."""
        (self.files.input / "data").write_text("input\n")
        walls, _ = await self.job(WALLS)
        self.found["walls"] = await self.end_of(walls)
        self.found["walls"] |= {"out": self.files.text("_condor_stdout"), "err": self.files.text("_condor_stderr")}
        self.found["walls"] |= {
            "made": self.files.text("made"),
            "updates": bool(told(self.pool, walls, "ContainerID")),
        }
        await eventually(lambda: not containers(self, self.pool))
        await eventually(lambda: not list(self.pool.execute.glob("dir_*")))

    async def refused(self):
        for name, attrs in REFUSED.items():
            activation, _ = await self.job("exit 0", **attrs)
            self.found[name] = await self.end_of(activation)
        # Podman's log has what its init says in pieces, more or fewer of them.
        again = [(await self.job("exit 0", **REFUSED["no program"]))[0] for _ in range(AGAIN)]
        self.found["no program again"] = [(await self.end_of(activation))["hold"] for activation in again]
        self.found["still"] = machine(self.pool).eval("HasDocker") is True

    async def asked(self):
        activation, granted = await self.job(
            "trap 'echo asked; exit 7' TERM; touch asking; while :; do sleep 0.05; done"
        )
        await up(self.pool, "asking")
        await self.deactivate(activation, granted, "hold", "graceful")
        self.found["asked"] = await self.end_of(activation)

    async def killed(self):
        activation, granted = await self.job("trap '' TERM; touch stubborn; exec sleep 1000")
        await up(self.pool, "stubborn")
        await self.deactivate(activation, granted, "remove", "fast")
        self.found["killed"] = await self.end_of(activation)

    async def by_itself(self):
        activation, _ = await self.job("kill -9 $$")
        self.found["by itself"] = await self.end_of(activation)

    async def by_somebody(self):
        activation, _ = await self.job("touch victim; exec sleep 1000")
        await up(self.pool, "victim")
        run = next(run for run in launcher(self.pool)._runs.values() if run.container)
        # It may be there before the engine says so, and kills nothing that it has not begun.
        await eventually(
            lambda: self.client.api.inspect_container(run.container)["State"]["Status"] == "running",
        )
        await asyncio.to_thread(self.client.api.kill, run.container, 9)
        self.found["by somebody"] = await self.end_of(activation)

    async def standing_still(self):
        activation, _ = await self.job("touch ticking; while [ ! -e go ]; do echo x >> ticks; sleep 0.02; done")
        ticks = (await up(self.pool, "ticking")).with_name("ticks")
        await eventually(ticks.exists)
        await self.pool.running(activation.job_id)
        run = next(iter(launcher(self.pool)._runs))
        await launcher(self.pool).suspend(run)
        async with asyncio.timeout(PATIENCE_S):
            while True:  # a process that is told to stop does so at its next step
                self.found["stood still"] = await self._states(run)
                if self.found["stood still"] in ("paused", "T"):
                    break
                await asyncio.sleep(0.02)
        at = ticks.stat().st_size
        await launcher(self.pool).continue_(run)
        await eventually(lambda: ticks.stat().st_size > at)
        await self._measure(run)
        ticks.with_name("go").touch()
        self.found["went on"] = await self.end_of(activation)

    async def _states(self, run) -> str:
        """How a container stands still: `paused` by its control group; else its processes' states, T if all do."""
        known = launcher(self.pool)._runs[run]
        inspected = await asyncio.to_thread(self.client.api.inspect_container, known.container)
        if inspected["State"].get("Paused"):
            return "paused"
        return await asyncio.to_thread(_states_of, int(inspected["State"]["Pid"]))

    async def _measure(self, run):
        async with asyncio.timeout(PATIENCE_S):
            while True:
                measured = await launcher(self.pool).measure(run)
                if measured.resident_set_kib > 0 and measured.procs > 0:
                    break
                await asyncio.sleep(0.05)
        self.found["measured"] = {"resident": measured.resident_set_kib, "procs": measured.procs}

    async def many(self):
        """A job that makes processes until it can not, or has ten times as many as the machine may have more."""
        most = threads() + 10 * PROCESSES
        activation, _ = await self.job(f"i=0; while [ $i -lt {most} ]; do sleep 100 & i=$((i+1)); done; exit 9")
        self.found["many"] = await self.end_of(activation)
        self.found["many"]["err"] = self.files.text("_condor_stderr")

    async def credentials(self):
        """In memory where the startd may mount, the new ones while the job runs; else the job does not start."""
        self.files.credentials = {"box.use": OLD}
        activation, _ = await self.job(CREDENTIALS, OAuthServicesNeeded="box")
        if os.getuid() == 0:
            await up(self.pool, "seen")
            (container,) = containers(self, self.pool)
            self.found["inspected"] = json.dumps(
                await asyncio.to_thread(self.client.api.inspect_container, container.id)
            )
            self.files.credentials = {"box.use": NEW}
        self.found["credentials"] = await self.end_of(activation)
        self.found["credentials"]["out"] = self.files.text("_condor_stdout")
        await eventually(lambda: not list(self.pool.execute.glob("dir_*")))

    async def adopted(self):
        """A startd that comes back finds its container."""
        activation, _ = await self.job("touch kept; while [ ! -e go ]; do sleep 0.05; done; echo end; exit 5")
        path = await up(self.pool, "kept")
        await self.pool.running(activation.job_id)
        await self.pool.restart()
        await eventually(lambda: machine(self.pool).eval("HasDocker") is True)
        path.with_name("go").touch()
        self.found["adopted"] = await self.end_of(activation)
        self.found["adopted"]["out"] = self.files.text("_condor_stdout")


def _states_of(pid: int) -> str:
    states = set()
    for one in (pid, *descendants_of(pid)):
        with contextlib.suppress(OSError):
            states.add(Path(f"/proc/{one}/stat").read_text(errors="replace").rpartition(")")[2].split()[0])
    return "".join(sorted(states))


async def main(plan: dict) -> dict:
    place = Path(plan["place"])
    (place / "pool").mkdir()
    knobs = {
        "DOCKER_PERFORM_TEST": "true",
        "ROOST_JOB_MAX_PROCESSES": str(PROCESSES),
        "NUM_CPUS": "64",
        "CRED_CHECK_INTERVAL": "1",
    }
    with contextlib.closing(docker.DockerClient(base_url=plan["url"], timeout=60, version=API)) as client:
        async with Endpoint(place) as files, running_pool(place / "pool", **knobs) as pool:
            jobs = Jobs(pool, files, client)
            parts = (jobs.ad, jobs.walls, jobs.refused, jobs.asked, jobs.killed, jobs.by_itself, jobs.by_somebody)
            parts += (jobs.standing_still, jobs.many, jobs.adopted, jobs.credentials)
            for part in parts:
                began = time.monotonic()
                try:
                    await part()
                except Exception:
                    jobs.found.setdefault("trouble", []).append(f"{part.__name__}: {traceback.format_exc()}")
                jobs.found.setdefault("took", {})[part.__name__] = round(time.monotonic() - began, 2)
    return jobs.found


if __name__ == "__main__":
    os.umask(0o022)
    print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))

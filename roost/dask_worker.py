"""What a worker of roost.dask.RoostCluster does where its job runs: `dask worker`, as large as the job's slot. This
file goes along with the job; it needs nothing of Roost's."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import distributed  # noqa: F401  (where it is not there, the job's runner tries another interpreter, and tells)

#: A worker whose scheduler does not answer for so long ends, and its job with it.
DEATH_TIMEOUT_S = 60


def work(scheduler: str, name: str, words: tuple[str, ...], keys: dict[str, str]) -> int:
    """Until the scheduler lets the worker go. keys: texts of PEM files by the option that names them. Raises
    RuntimeError where it ends otherwise."""
    machine = _machine_ad(os.environ.get("_CONDOR_MACHINE_AD", ""))
    command = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler, "--name", name, "--no-dashboard"]
    command += ["--nthreads", machine.get("Cpus", "1"), "--local-directory", os.getcwd()]
    command += ["--death-timeout", str(DEATH_TIMEOUT_S)]
    if "Memory" in machine:
        command += ["--memory-limit", f"{machine['Memory']}MiB"]
    for option, text in keys.items():
        path = Path(f"dask-{option}.pem")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        command += [f"--tls-{option}", str(path.absolute())]
    with subprocess.Popen([*command, *words]) as worker:
        for one in (signal.SIGTERM, signal.SIGINT):
            signal.signal(one, lambda *_: worker.terminate())
        code = worker.wait()
    if code:
        raise RuntimeError(f"dask worker {name} ended with {code}; the job's standard error tells more")
    return code


def _machine_ad(path: str) -> dict[str, str]:
    """Its whole numbers, as texts. Empty where there is none."""
    if not os.path.exists(path):
        return {}
    return dict(re.findall(r"^(\w+) = (\d+)$", Path(path).read_text(errors="replace"), re.MULTILINE))

"""The launchers that there are, and which of them starts a job.

| the job | launcher |
|---|---|
| is of the vm universe | vm |
| asks for Docker (docker universe, WantDocker; DockerImage without WantContainer) | docker |
| asks for any container with an image of a registry (docker://) | docker where an engine answers, else apptainer |
| asks for any container with another image (a .sif file, a directory) | apptainer |
| is of the java universe | java, unless SINGULARITY_JOB is true |
| asks for none, and SINGULARITY_JOB is true of slot and job | apptainer, with SINGULARITY_IMAGE_EXPR's image |
| else | process |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from services.startd.core.run.job_launch import Choice
from services.startd.exec.api import Launcher, LauncherHost, LauncherKind
from services.startd.exec.apptainer.launcher import APPTAINER
from services.startd.exec.docker.launcher import DOCKER
from services.startd.exec.java.launcher import JAVA
from services.startd.exec.process import PROCESS
from services.startd.exec.vm.launcher import VM
from shared.classad import ClassAd
from shared.config.knobs import StartdSettings

#: The first that wants a job gets it. The process launcher wants all.
KINDS: Final[tuple[LauncherKind, ...]] = (VM, DOCKER, JAVA, APPTAINER, PROCESS)
#: Files in the scratch directory that are launchers' own, and never count as output.
LAUNCHER_FILES: Final = frozenset[str]().union(*(kind.own_files for kind in KINDS))


def read_launcher_settings(knobs: StartdSettings) -> Mapping[str, Any]:
    """The settings of all launchers, by their names. Raises ConfigError, PermanentError."""
    return {kind.name: kind.read_settings(knobs) for kind in KINDS}


def make_launchers(host: LauncherHost) -> dict[str, Launcher]:
    processes = PROCESS.make(host)
    host = replace(host, processes=processes)
    return {PROCESS.name: processes} | {kind.name: kind.make(host) for kind in KINDS if kind is not PROCESS}


def choose(job: ClassAd, machine: ClassAd, settings: Mapping[str, Any]) -> Choice:
    """The launcher of a job, and its image. machine: the slot's ad. settings: by launcher. Raises RunFailed."""
    choices = (kind.choose(job, machine, settings[kind.name]) for kind in KINDS)
    return next(choice for choice in choices if choice is not None)

"""Runs jobs of the java universe: a Java that the administrator names (JAVA) is the process, with the job's class and
JAR files; started by the process launcher with the same isolation, measured, killed and adopted as that does it.

What is added: the command line (`plan`), and what the slots say of the Java that is here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from services.startd.core.run.failures import Fault, RunFailed
from services.startd.core.run.job_launch import Finished, Launch, Started
from services.startd.exec.api import LOOPBACK, LauncherKind
from services.startd.exec.java.plan import (
    PROPERTIES,
    JavaFound,
    JavaSettings,
    choose_java,
    java_attributes,
    java_words,
    read_java_settings,
    read_properties,
)
from services.startd.exec.process_based import ProbedLauncher
from shared.classad import ClassAd
from shared.subprocess_runner import ProgramFailed, clean_environment, run

#: How long Java may take to tell its version; how long after one that did not work it is tried again, seconds.
TRY_S: Final = 30.0
AGAIN_S: Final = 300.0


class JavaLauncher(ProbedLauncher[JavaFound]):
    processes_are = "started"

    @property
    def rules(self) -> JavaSettings:
        """The knobs, as they are now."""
        found = self.host.settings("java")
        assert isinstance(found, JavaSettings)
        return found

    # ---------------------------------------------------------------- whether it works

    def attributes(self, jobs: Sequence[ClassAd]) -> Mapping[str, object]:
        return java_attributes(self.rules, self.found)

    async def probe(self) -> JavaFound:
        return await probe(self.rules)

    def log_found(self, found: JavaFound) -> None:
        if found.program or found.trouble:
            self.host.context.log.info("java", version=found.version, reason=found.trouble)

    def again_s(self, found: JavaFound) -> float | None:
        return AGAIN_S if found.trouble else None

    # ---------------------------------------------------------------- a run

    async def reaches(self, launch: Launch) -> str:
        return LOOPBACK

    async def prepare(self, launch: Launch) -> None:
        await self.processes.prepare(self._made(launch))

    async def start(self, launch: Launch) -> Started:
        try:
            return await self.processes.start(self._made(launch))
        except RunFailed as error:
            if error.code == Fault.NO_EXECUTABLE.code:
                raise Fault.NO_JAVA.failure(f"JAVA can not be run: {error.message}") from error
            raise

    async def finished(self, run: str) -> Finished:
        return await self.processes.finished(run)

    def _made(self, launch: Launch) -> Launch:
        """The launch of Java as a process. Raises RunFailed."""
        program = self.found.program if self.found is not None else ""
        if not program:
            why = self.found.trouble if self.found is not None else "JAVA was not tried yet"
            raise Fault.NO_JAVA.failure(f"this machine runs no Java: {why or 'JAVA is not set'}")
        words = java_words(self.rules, launch)
        return replace(
            launch,
            executable=program,
            argv=(program, *words),
            reads=(*launch.reads, os.path.dirname(os.path.dirname(os.path.realpath(program)))),
        )


async def probe(rules: JavaSettings) -> JavaFound:
    """Ask JAVA what it is."""
    if not rules.program:
        return JavaFound()
    program = shutil.which(rules.program)
    if program is None:
        return JavaFound(trouble=f"JAVA = {rules.program} is no program: install Java, or correct the path")
    try:
        ended = await run((program, *PROPERTIES), env=clean_environment(os.environ), timeout_s=TRY_S)
    except ProgramFailed as error:
        return JavaFound(trouble=f"JAVA = {rules.program}: {error}")
    said = (ended.stdout + ended.stderr).decode("utf-8", "replace")
    if not ended.good:
        return JavaFound(trouble=f"JAVA = {rules.program} does not run: {ended}")
    return read_properties(program, said)


JAVA = LauncherKind(name="java", make=JavaLauncher, choose=choose_java, read_settings=read_java_settings)

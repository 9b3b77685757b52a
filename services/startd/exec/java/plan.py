"""From the knobs, the slot and the job to Java's command line, and what slots say of the Java that is here. Pure.

The order of the words is HTCondor's, less its wrapper, a class of its own which tells an exception from an exit status:

    JAVA -classpath DEFAULTS:JARS EXTRA -Dchirp.config=SCRATCH/.chirp.config JOB'S-VM-ARGUMENTS CLASS ARGUMENTS
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from services.startd.core.run.failures import Fault
from services.startd.core.run.job_launch import CHIRP_CONFIG, Choice, Launch
from shared.classad import ClassAd, Expr, evaluate, is_true, parse_expr
from shared.classad.expr import Literal
from shared.config.knobs import StartdSettings
from shared.errors import PermanentError
from shared.job_text import BadJobText, arguments, quoted, words_v2

UNIVERSE: Final = 10
#: Has it tell of itself.
PROPERTIES: Final = ("-XshowSettings:properties", "-version")
_PROPERTY: Final = re.compile(r"^\s*(java\.[a-z.]+) = (.*?)\s*$", re.MULTILINE)
_BLANKS: Final = re.compile(r"[\s,]+")
_NEVER: Final = parse_expr("false")


class BadJavaSetting(PermanentError):
    """A knob says what can not be carried out: its name and the mend."""


@dataclass(frozen=True, slots=True)
class JavaSettings:
    """program: JAVA; empty: no jobs of the java universe. classpath: before the job's JAR files. extra: words before
    the job's own. contained: SINGULARITY_JOB, which Java is not run against."""

    program: str = ""
    classpath_argument: str = "-classpath"
    separator: str = ":"
    classpath: tuple[str, ...] = (".",)
    extra: tuple[str, ...] = ()
    contained: Expr = field(default=_NEVER)


def read_java_settings(knobs: StartdSettings) -> JavaSettings:
    """Raises BadJavaSetting."""
    text = (knobs.java_extra_arguments or "").strip()
    new = quoted(text)
    try:
        extra = words_v2(new) if new is not None else text.split()
    except BadJobText as error:
        raise BadJavaSetting(f"JAVA_EXTRA_ARGUMENTS = {text}: {error}") from error
    return JavaSettings(
        program=(knobs.java or "").strip(),
        classpath_argument=knobs.java_classpath_argument,
        separator=knobs.java_classpath_separator[:1] or ":",
        classpath=tuple(_listed(knobs.java_classpath_default)) or (".",),
        extra=tuple(extra),
        contained=knobs.singularity_job,
    )


def _listed(text: str) -> list[str]:
    return [name for name in _BLANKS.split(text) if name]


@dataclass(frozen=True, slots=True)
class JavaFound:
    """What JAVA is. program: its path; empty: it runs nothing, `trouble` says why unless none is wanted."""

    program: str = ""
    vendor: str = ""
    version: str = ""
    specification: str = ""
    trouble: str = ""


def read_properties(program: str, said: str) -> JavaFound:
    """What a Java with PROPERTIES printed."""
    found = dict(_PROPERTY.findall(said))
    if "java.version" not in found:
        last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "it said nothing")
        return JavaFound(trouble=f"JAVA = {program} does not tell its version: {last[:200]}")
    return JavaFound(
        program, found.get("java.vendor", ""), found["java.version"], found.get("java.specification.version", "")
    )


def java_attributes(rules: JavaSettings, found: JavaFound | None) -> Mapping[str, object]:
    """What the slots say: nothing where no job of the java universe can run."""
    if found is None or not found.program or not _never(rules.contained):
        return {}
    told = {
        "JavaVendor": found.vendor,
        "JavaVersion": found.version,
        "JavaSpecificationVersion": found.specification,
    }
    return {"HasJava": True, **{name: value for name, value in told.items() if value}}


def _never(expr: Expr) -> bool:
    return isinstance(expr, Literal) and not is_true(expr.value)


def choose_java(job: ClassAd, machine: ClassAd, settings: JavaSettings) -> Choice | None:
    """Whether Java runs the job. Raises RunFailed."""
    if job.eval("JobUniverse") != UNIVERSE:
        return None
    if is_true(evaluate(settings.contained, machine, job)):
        raise Fault.NO_JAVA.failure("this machine puts its jobs into containers (SINGULARITY_JOB), and runs no Java")
    return Choice("java")


def java_words(rules: JavaSettings, launch: Launch) -> tuple[str, ...]:
    """What follows the program's name. A job whose files came along has its JAR files in the scratch directory. Raises
    RunFailed."""
    job, scratch = launch.job_ad, str(launch.scratch)
    jars = _listed(job.eval_string("JarFiles"))
    if launch.cwd == scratch:
        jars = [posixpath.join(scratch, posixpath.basename(jar)) for jar in jars]
    try:
        own = arguments(_text(job, "JavaVMArguments"), _text(job, "JavaVMArgs"))
    except BadJobText as error:
        raise Fault.BAD_TEXT.failure(f"java_vm_args: {error}") from error
    return (
        rules.classpath_argument,
        rules.separator.join((*rules.classpath, *jars)),
        *rules.extra,
        f"-Dchirp.config={posixpath.join(scratch, CHIRP_CONFIG)}",
        *own,
        *launch.argv[1:],
    )


def _text(job: ClassAd, name: str) -> str | None:
    value = job.eval(name)
    return value if isinstance(value, str) else None

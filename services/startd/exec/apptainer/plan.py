"""What to run a container with: from knobs, the slot's ad and the job's to a command line. Pure.

Spec rows SNG-02 to SNG-13. The order of the command line is HTCondor's, and people grep logs for it:

    RUNTIME -s exec -S /tmp -S /var/tmp --pwd D -B D --no-home -C IMAGE EXE ARGS

D is the scratch directory; with a target directory T it is `--pwd T -B D:T`, and everything that names a place in D to
the job (its program, TMPDIR, _CONDOR_SCRATCH_DIR, ...) names it in T.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from services.startd.core.run.failures import Fault
from services.startd.core.run.job_launch import Choice, Launch
from services.startd.exec.container_request import REGISTRY, container_request, inside_path
from shared.classad import UNDEFINED, ClassAd, Expr, ParseError, Value, evaluate, is_true, parse_expr
from shared.config.knobs import StartdSettings
from shared.errors import PermanentError
from shared.job_text import BadJobText, arguments

#: Of all images that the runtime fetches by itself: "docker://", "http://", "library://", "oras://", ...
_SCHEME = "://"


class BadApptainerSetting(PermanentError):
    """A knob says what can not be carried out: its name and the mend."""


class BadContainer(Exception):
    """The job's container can not be made as the knobs and the job say: the job is held."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class ApptainerSettings:
    """The knobs SINGULARITY_* and MOUNT_UNDER_SCRATCH."""

    program: str
    job: Expr
    image: Expr
    bind: Expr | None
    ignore_missing_target: bool
    test_first: bool
    test_timeout: float  # seconds, of the image's test: with it, images are fetched
    extra: Expr | tuple[str, ...]
    target_dir: str  # empty: the job's, or the scratch directory's own name
    verbosity: str
    under_scratch: Expr | None


def read_apptainer_settings(knobs: StartdSettings) -> ApptainerSettings:
    """Raises BadRule."""
    target = knobs.singularity_target_dir or ""
    if target and not _clean(target):
        raise BadApptainerSetting(
            f"SINGULARITY_TARGET_DIR = {target}: write an absolute path other than / and without .. in it"
        )
    return ApptainerSettings(
        program=knobs.singularity,
        job=knobs.singularity_job,
        image=knobs.singularity_image_expr,
        bind=knobs.singularity_bind_expr,
        ignore_missing_target=knobs.singularity_ignore_missing_bind_target,
        test_first=knobs.singularity_run_test_before_job,
        test_timeout=knobs.roost_singularity_test_timeout,
        extra=_extra(knobs.singularity_extra_arguments or ""),
        target_dir=target and posixpath.normpath(target),
        verbosity=knobs.singularity_verbosity,
        under_scratch=knobs.mount_under_scratch,
    )


def _extra(text: str) -> Expr | tuple[str, ...]:
    """Options as they are, or an expression that gives them: options begin with a dash (SNG-12)."""
    text = text.strip()
    if not text or text.startswith("-"):
        return _words("SINGULARITY_EXTRA_ARGUMENTS", text)
    try:
        return parse_expr(text, "old")
    except ParseError as error:
        raise BadApptainerSetting(
            f"SINGULARITY_EXTRA_ARGUMENTS = {text}: neither options, which begin with -, nor an expression: {error}"
        ) from error


def _words(name: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(arguments(text, None))
    except BadJobText as error:
        raise BadApptainerSetting(f"{name} = {text}: {error}") from error


@dataclass(frozen=True, slots=True)
class ApptainerPlan:
    """One job's container."""

    image: str  # a path, or what the runtime fetches; a relative path lies in the scratch directory
    target_dir: str = ""  # the scratch directory's name inside; empty: the same as outside
    binds: tuple[str, ...] = ()  # source[:target[:options]]
    under_scratch: tuple[str, ...] = ()  # directories that are private to the job
    extra: tuple[str, ...] = ()
    gpus: bool = False
    ignore_missing_target: bool = False
    verbosity: str = "-s"


def wants(rules: ApptainerSettings, machine: ClassAd, job: ClassAd) -> bool:
    """Whether SINGULARITY_JOB puts this job into a container (SNG-02)."""
    return is_true(evaluate(rules.job, machine, job))


def image_by_rule(rules: ApptainerSettings, machine: ClassAd, job: ClassAd) -> str:
    """What SINGULARITY_IMAGE_EXPR gives (SNG-03). Raises BadContainer when that is no string."""
    value = evaluate(rules.image, machine, job)
    if not isinstance(value, str) or not value.strip():
        told = "is undefined" if value is UNDEFINED else f"gives {value!r}"
        raise BadContainer(f"the job is to run in a container, but SINGULARITY_IMAGE_EXPR {told}: name an image")
    return value.strip()


def choose_apptainer(job: ClassAd, machine: ClassAd, settings: ApptainerSettings) -> Choice | None:
    """Whether Apptainer runs the job: it asks for a container that Docker does not make, or the knobs want it in one.
    Raises RunFailed."""
    request = container_request(job)
    try:
        if request.wants_container:
            image = f"{REGISTRY}{request.registry_image}" if request.registry_image else request.image
        elif wants(settings, machine, job):
            image = image_by_rule(settings, machine, job)
        else:
            return None
        return Choice("apptainer", image, make_plan(settings, image, machine, job), in_container=True)
    except BadContainer as error:
        raise Fault.BAD_IMAGE.failure(error.message) from error


def make_plan(rules: ApptainerSettings, image: str, machine: ClassAd, job: ClassAd) -> ApptainerPlan:
    """Raises BadContainer."""
    if "\0" in image:
        raise BadContainer("the image's name holds a zero byte")
    gpus = machine.eval("GPUs")
    return ApptainerPlan(
        image=image,
        target_dir=rules.target_dir or _job_target(job),
        binds=tuple(_text("SINGULARITY_BIND_EXPR", rules.bind, machine, job).split()),
        under_scratch=tuple(_text("MOUNT_UNDER_SCRATCH", rules.under_scratch, machine, job).replace(",", " ").split()),
        extra=_extra_of(rules, machine, job),
        gpus=isinstance(gpus, int | float) and gpus > 0,
        ignore_missing_target=rules.ignore_missing_target,
        verbosity=rules.verbosity,
    )


def _job_target(job: ClassAd) -> str:
    value = job.eval_string("ContainerTargetDir")
    if not value:
        return ""
    if not _clean(value):
        raise BadContainer(f"container_target_dir = {value}: write an absolute path other than / and without .. in it")
    return posixpath.normpath(value)


def _clean(path: str) -> bool:
    """Whether it may be the name of a directory inside: it becomes a part of `-B source:target`."""
    parts = path.split("/")
    return path.startswith("/") and any(parts) and ".." not in parts and not any(c in path for c in ":,\0\n")


def _text(name: str, expr: Expr | None, machine: ClassAd, job: ClassAd) -> str:
    value: Value = UNDEFINED if expr is None else evaluate(expr, machine, job)
    if value is UNDEFINED:
        return ""
    if not isinstance(value, str) or "\0" in value:
        raise BadContainer(f"{name} gives {value!r} for this job on this machine: it must be a string")
    return value


def _extra_of(rules: ApptainerSettings, machine: ClassAd, job: ClassAd) -> tuple[str, ...]:
    if isinstance(rules.extra, tuple):
        return rules.extra
    try:
        return tuple(arguments(_text("SINGULARITY_EXTRA_ARGUMENTS", rules.extra, machine, job), None))
    except BadJobText as error:
        raise BadContainer(f"SINGULARITY_EXTRA_ARGUMENTS can not be read: {error}") from error


# ---------------------------------------------------------------- the command


@dataclass(frozen=True, slots=True)
class Around:
    """What the machine says while a command is made. exists: of a path outside; has_target(image, path): whether the
    image is a directory with this path in it, None when it is no directory."""

    exists: Callable[[str], bool]
    has_target: Callable[[str, str], bool | None]


@dataclass(frozen=True, slots=True)
class Command:
    argv: tuple[str, ...]
    env: Mapping[str, str]
    skipped: tuple[str, ...] = ()  # binds that were left out, with the reason


def image_path(plan: ApptainerPlan, scratch: str) -> str:
    """The image as the runtime is told it. It never begins with a dash, so it is never an option."""
    return plan.image if _SCHEME in plan.image else posixpath.join(scratch, plan.image)


def make_command(
    program: str, verb: Literal["exec", "test"], plan: ApptainerPlan, launch: Launch, around: Around, path: str
) -> Command:
    """The command line of the job (`exec`; `run` where it has no program of its own), or of the image's test before
    it. path: PATH of the runtime itself, where it finds its helpers."""
    scratch = str(launch.scratch)
    target = plan.target_dir
    image = image_path(plan, scratch)
    options: list[str] = []
    work = inside_path(launch.cwd, scratch, target)
    for directory in plan.under_scratch:
        if not _holds(directory, target or scratch) and not _holds(directory, work):
            # It would be mounted over the job's own directory. The container has an empty one in its place anyhow.
            options += ["-S", directory]
    options += ["--pwd", work, "-B", f"{scratch}:{target}" if target else scratch]
    if not _holds(scratch, launch.cwd):
        options += ["-B", launch.cwd]  # the job runs where its files are, not in the scratch directory
    skipped = []
    for bind in plan.binds:
        reason = _skip(bind, image, plan, around)
        if reason:
            skipped.append(f"{bind}: {reason}")
        else:
            options += ["-B", bind]
    if plan.gpus:
        options.append("--nv")
    options += ["--no-home", "-C", *plan.extra, image]
    words: list[str] = []
    if verb == "exec" and launch.executable:
        words = [inside_path(launch.executable, scratch, target), *launch.argv[1:]]
    elif verb == "exec":
        words = list(launch.argv)
    do = "run" if verb == "exec" and not launch.executable else verb
    if verb == "test" and around.has_target(image, "/.singularity.d/actions/test") is False:
        # A tree that the runtime did not make has no test, nor the default one (SNG-08).
        do, words = "exec", ["/bin/sh", "-c", "true"]
    first = [program, *([plan.verbosity] if plan.verbosity else []), do]
    return Command((*first, *options, *words), _environment(launch, target, path), tuple(skipped))


def _skip(bind: str, image: str, plan: ApptainerPlan, around: Around) -> str:
    """Why a bind is left out (SNG-05, SNG-06); empty when it is not."""
    for one in bind.split(","):
        source, _, rest = one.partition(":")
        inside = rest.partition(":")[0] or source
        if not around.exists(source):
            return "the source is missing on this machine"
        if plan.ignore_missing_target and around.has_target(image, inside) is False:
            return "the target is missing in the image"
    return ""


def _holds(directory: str, path: str) -> bool:
    directory = posixpath.normpath(directory)
    return path == directory or path.startswith(directory.rstrip("/") + "/")


#: The runtime does not let these be set from outside, and complains.
_NOT_PASSED = frozenset(("HOME",))


def _environment(launch: Launch, target: str, path: str) -> dict[str, str]:
    """The runtime's own variables, and the job's under the names by which they get through `-C`: both families, for
    Singularity knows only its own."""
    scratch = str(launch.scratch)
    own = {"PATH": path, "LANG": "C.UTF-8"}
    hidden = posixpath.join(scratch, ".apptainer")
    for family in ("APPTAINER", "SINGULARITY"):
        # What is fetched and converted lies in the job's directory, and on its account (SNG-03).
        own[f"{family}_CACHEDIR"] = posixpath.join(hidden, "cache")
        own[f"{family}_TMPDIR"] = hidden
        own[f"{family}_NO_EVAL"] = "1"  # else a $ in a variable's value would be the container's shell's
    for name, value in launch.env.items():
        if name not in _NOT_PASSED:
            value = inside_path(value, scratch, target)
            own[f"APPTAINERENV_{name}"] = value
            own[f"SINGULARITYENV_{name}"] = value
    return own


# ---------------------------------------------------------------- what the runtime said

#: How the runtime's own lines begin: the level, padded to eight letters.
_LEVELS = ("FATAL:  ", "ERROR:  ", "WARNING:", "INFO:   ", "VERBOSE", "DEBUG  ")
#: Its exit status for a refusal of its own.
REFUSED = 255
_NO_PROGRAM = ("executable file not found", "no such file or directory", "permission denied", "exec format error")


def refusal(exit_code: int | None, printed: bool, said: str) -> str:
    """Why the container did not come into being; empty when the job ran. printed: whether anything came on standard
    output; said: what came on standard error. A job that ends with 255, even with words of its own that begin like the
    runtime's, ran."""
    if exit_code != REFUSED or printed:
        return ""
    lines = [_plain(line) for line in said.splitlines()]
    lines = [line for line in lines if line.strip()]
    if not lines or not all(line.startswith(_LEVELS) for line in lines):
        return ""
    fatal = [line.partition(":")[2].strip() for line in lines if line.startswith("FATAL:")]
    return fatal[-1] if fatal else ""


def is_about_program(reason: str, executable: str) -> bool:
    """Whether a refusal is about the job's program, not the container."""
    name = posixpath.basename(executable)
    return bool(name) and name in reason and any(words in reason for words in _NO_PROGRAM)


def _plain(line: str) -> str:
    """The text without colours."""
    while (start := line.find("\x1b[")) >= 0:
        end = line.find("m", start)
        if end < 0:
            break
        line = line[:start] + line[end + 1 :]
    return line


def last_words(said: str, limit: int = 400) -> str:
    """The end of what was said, on one line."""
    lines: Iterator[str] = (" ".join(_plain(line).split()) for line in said.splitlines())
    return "; ".join(line for line in lines if line)[-limit:]

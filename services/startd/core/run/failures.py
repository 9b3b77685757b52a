"""What can go wrong with a run, and what becomes of the job then: the one table of failures. Pure.

Whoever meets a failure names its row. Codes and subcodes are HTCondor's HoldReasonCode and HoldReasonSubCode; no other
module has numbers of them (tests/unit/startd/test_failures.py). Codes of VacateReasonCode are in `VacateReason`.
`python -m services.startd.core.run.failures` prints docs/execution/failures.md.

`Health` says how long a launcher that does not work is not offered: the machine says so in its ads and takes no such
jobs, for a while that doubles each time, until it works again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from services.startd.core.slots.model import VacateReason
from shared.backoff import wait_s
from shared.messages.claims import JobExit

Then = Literal["held", "elsewhere"]


@dataclass(frozen=True, slots=True)
class Row:
    """subcode_is: what the subcode is where it is not the same for every failure of the row."""

    what: str
    then: Then
    code: int = 0
    subcode: int = 0
    subcode_is: str = ""
    note: str = ""


class RunFailed(Exception):
    """A run can not be started, or its files not be sent. `hold`: the job is at fault; `failed`: this machine is.
    machine: whatever job came here, it would fail (`core.machine.health`)."""

    def __init__(
        self, kind: Literal["hold", "failed"], message: str, code: int = 0, subcode: int = 0, *, machine: bool = False
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.code = code
        self.subcode = subcode
        self.machine = machine

    def exit(self) -> JobExit:
        """The end of the run, for the schedd."""
        return JobExit(reason=self.kind, message=self.message, hold_code=self.code, hold_subcode=self.subcode)


class Fault(Enum):
    """*held* needs a person, *elsewhere* sends the job back to the queue with this machine's reason. Two rows must
    differ in something: they are told apart by what they hold."""

    _value_: Row

    NO_EXECUTABLE = Row(
        "executable missing, not executable, no program, bad interpreter", "held", 6, subcode_is="errno"
    )
    NO_PROGRAM_IN_IMAGE = Row("program not in the container's image, or not for this machine", "held", 6, 2)
    CONTAINER_REFUSED = Row(
        "the container can not be made or started, while this machine's own test container can", "held", 6
    )
    NO_SUCH_REQUEST = Row(
        "docker_network_type, container_target_dir, docker_pull_policy, services or DOCKER_SHM_SIZE not to be had",
        "held",
        6,
        22,
    )
    NO_OUTPUT_FILE = Row(
        "Out or Err of a job without transfer, or of a container, can not be written", "held", 7, subcode_is="errno"
    )
    NO_INPUT_FILE = Row(
        "In of a job without transfer, or of a container, can not be read", "held", 8, subcode_is="errno"
    )
    NO_DIRECTORY = Row("Iwd can not be entered", "held", 14, subcode_is="errno")
    HOOK_REFUSED = Row("the prepare hook wants the job held", "held", 19, subcode_is="HookStatusCode, 0 to 299")
    HOOK_FAILED = Row("the prepare hook can not be called, or wants the job to go back", "elsewhere")
    MISSED_TIME = Row("deferral_time and its window are over before the job can start", "held", 20)
    HELD_BY_POLICY = Row("WANT_HOLD of a machine that preempts the job", "held", 21, subcode_is="WANT_HOLD_SUBCODE")
    BAD_TEXT = Row("arguments or environment can not be read", "held", 5)
    BAD_INPUT = Row("input refused by the endpoint, or a bad bundle", "held", 13)
    BAD_OUTPUT = Row("output missing, outside of the scratch directory, refused", "held", 12)
    URL_INPUT = Row(
        "input by URL not to be had",
        "held",
        13,
        subcode_is="the plug-in's exit status times 256, or 62 where it took too long",
    )
    URL_OUTPUT = Row(
        "output not to be sent to its URL",
        "held",
        12,
        subcode_is="the plug-in's exit status times 256, or 62 where it took too long",
    )
    INPUT_TOO_LARGE = Row("input larger than MaxTransferInputMB, or MAX_TRANSFER_INPUT_MB, allows", "held", 32)
    OUTPUT_TOO_LARGE = Row("output larger than MaxTransferOutputMB, or MAX_TRANSFER_OUTPUT_MB, allows", "held", 33)
    NO_CHECKPOINT = Row(
        "checkpoint missing, outside of the scratch directory, refused; or not to be had from its URL, or sent there",
        "held",
        36,
        subcode_is="0, or a plug-in's exit status times 256, or 62 where it took too long",
    )
    NO_CREDENTIALS = Row("a credential of use_oauth_services missing, or not to be delivered", "held", 4)
    NO_IMAGE = Row(
        "image missing, not a name, not to be pulled (after 3 attempts where the registry is away)", "held", 35
    )
    BAD_IMAGE = Row("Apptainer can not run the image: its test before the job fails", "held", 45)
    OVER_MEMORY = Row("job over its memory", "held", 34, 102, note="with the measured use and the limit")
    OVER_DISK = Row("scratch directory over its disk", "held", 34, 104, note="with the measured use and the limit")
    NO_ROOM_FOR_OUTPUT = Row("no room on the disk for what a container prints", "held", 34, 104)
    NOT_WANTED = Row("the endpoint does not know the run or its token (401, 404, 409, 410)", "elsewhere")
    ENGINE_AWAY = Row(
        "Docker engine away, or unable to run its test container",
        "elsewhere",
        note="HasDocker false, DockerOfflineReason",
    )
    ENGINE_FULL = Row(
        "no room on the engine's disk, also after unused images were removed",
        "elsewhere",
        note="HasDocker false, DockerOfflineReason",
    )
    RUNTIME_BROKEN = Row("Apptainer does not work", "elsewhere", note="HasSingularity false, SingularityOfflineReason")
    VM_REFUSED = Row(
        "virtual machine: vm_disk or vm_memory not to be carried out, an image that QEMU does not take", "held", 6, 13
    )
    VM_BROKEN = Row(
        "virtual machine: no QEMU, no KVM, no memory for the guest, or it broke off by the machine's fault",
        "elsewhere",
        note="HasVM false, VMOfflineReason, until a machine runs here, the startd is restarted or HasVM is set",
    )
    NO_JAVA = Row("the java universe: no JAVA, or one that can not be run", "elsewhere", note="HasJava is not told")
    VOLUME_MISSING = Row("a directory of DOCKER_VOLUMES is not there", "elsewhere", note="HasDocker false for a while")
    NETWORK_MISSING = Row(
        "the engine lacks a network of DOCKER_NETWORKS", "elsewhere", note="it leaves DockerNetworks until it is there"
    )
    CONTAINER_LOST = Row(
        "container killed or removed by somebody else, or ended with its engine",
        "elsewhere",
        note="as the next attempt",
    )
    MEMORY_SHORT = Row(
        "the machine out of memory, while the job was below what it was given", "elsewhere", note="run again"
    )
    NO_ISOLATION = Row("the job's limits, account or file system can not be made here", "elsewhere")
    NOT_SEPARATED = Row(
        "a job without a container, where nothing separates such jobs from the startd, or that names a file which jobs "
        "may not use here",
        "elsewhere",
        note="ProcessJobsReason",
    )
    NO_PROCESS = Row("no process or memory to be had for the start", "elsewhere")
    EXECUTE_FULL = Row("EXECUTE full while input comes", "elsewhere")
    IN_THE_CLEAR = Row("the access point is another machine, and its file server speaks no TLS", "elsewhere")
    CERTIFICATE_TROUBLE = Row(
        "the certificate of the access point's file server is not to be believed here, or one of this machine's can "
        "not be used, before the job has its input",
        "elsewhere",
        note="the reason has the mend; output waits for it as long as the lease lasts",
    )
    MACHINE_ERROR = Row("an error of this machine's disks or memory, as when EXECUTE is full", "elsewhere")
    STARTD_ERROR = Row("a mistake in the startd itself", "elsewhere")
    PROCESS_LOST = Row(
        "job's processes lost (nanny or fork server killed)", "elsewhere", note="or here, as the next attempt"
    )
    LEASE_OVER = Row("the claim's lease passed: where the processes are, also without a startd", "elsewhere")
    NEXT_DOES_NOT_FIT = Row("next job of a claim does not fit", "elsewhere")
    NEXT_TOO_LATE = Row(
        "next job of a claim that ended while it was on its way", "elsewhere", note="nothing is counted"
    )
    NO_TIME_FOR_OUTPUT = Row("no time left for the output of a job that was preempted", "elsewhere", note="run again")

    @property
    def code(self) -> int:
        return self.value.code

    @property
    def subcode(self) -> int:
        return self.value.subcode

    def failure(self, message: str, subcode: int = 0, *, machine: bool = False) -> RunFailed:
        """The exception to raise. subcode: counts where the row says that it varies. machine: as RunFailed has it."""
        row = self.value
        if row.then == "held":
            return RunFailed("hold", message, row.code, subcode if row.subcode_is else row.subcode)
        return RunFailed("failed", message, machine=machine)

    def exit(self, reason: Literal["hold", "failed", "evicted"], message: str, subcode: int = 0) -> JobExit:
        """The end of a run, for the schedd. evicted: nobody is to blame, and nothing is counted."""
        row = self.value
        assert (reason == "hold") is (row.then == "held"), self
        if reason == "hold":
            subcode = subcode if row.subcode_is else row.subcode
            return JobExit(reason="hold", message=message, hold_code=row.code, hold_subcode=subcode)
        return JobExit(reason=reason, message=message)


def failed_with(message: str, code: int, subcode: int) -> RunFailed:
    """The failure of a run of which a program other than the job was ended so. code 0: by the machine's fault."""
    return RunFailed("hold" if code else "failed", message, code, subcode)


# ---------------------------------------------------------------- a launcher that does not work

#: Seconds that the machine says that it can not, at least; doubled by each failure in a row, up to the longest.
FIRST_S, LONGEST_S = 2.0, 600.0


@dataclass(slots=True)
class Health:
    """Whether a launcher can be used. Times are of a monotonic clock, seconds."""

    reason: str = "not asked yet"  # why it can not be used; empty: it can
    failures: int = 0  # in a row: since a job was started, or anything was asked for the first time
    until: float = float("-inf")  # it is not tried before

    def broke(self, why: str, now: float) -> None:
        """It did not do what it was asked. Further failures before the next attempt are of the same trouble."""
        self.reason = why or "unknown"
        if now >= self.until:
            self.failures += 1
            self.until = now + wait_s(self.failures, FIRST_S, LONGEST_S)

    def passed(self) -> None:
        """A probe went well. The count stays: jobs may fail where probes do not."""
        self.reason = ""

    def proved(self) -> None:
        """A job was started."""
        self.reason = ""
        self.failures = 0
        self.until = float("-inf")

    def wait_s(self, now: float, regular_s: float) -> float:
        """Seconds until the next probe."""
        return max(0.0, self.until - now) if self.reason else regular_s


# ---------------------------------------------------------------- the page

#: What is repeated, or ends otherwise than by a row of the table.
_NO_ROW = (
    ("endpoint away, connection broken", "repeated, until the lease of the claim ends"),
    ("the spool of the schedd full when output comes", "repeated, until there is room"),
    ("the startd's own spool full", "repeated; what runs goes on; new claims are refused"),
    ("report not acknowledged", "repeated, for a day beyond the lease"),
    ("lease over", "elsewhere; job killed, claim broken (`ClaimLost`), slot free"),
)


def page() -> Iterator[str]:
    """Lines of docs/execution/failures.md."""
    yield "# Failures of runs"
    yield ""
    yield "Written by `python -m services.startd.core.run.failures`, from the table that the startd goes by."
    yield ""
    yield "*Held* needs a person; the codes are HoldReasonCode and HoldReasonSubCode. *Elsewhere* sends the job back"
    yield "to the queue with this machine's reason."
    yield ""
    yield "| what fails | then |"
    yield "| --- | --- |"
    for fault in Fault:
        row = fault.value
        then: list[str] = [row.then]
        if row.code:
            then.append(f"code {row.code}")
        if row.subcode_is:
            then.append(f"subcode {row.subcode_is}")
        elif row.subcode:
            then.append(f"subcode {row.subcode}")
        yield f"| {row.what} | {', '.join(then)}{'; ' + row.note if row.note else ''} |"
    yield ""
    yield "What is no end of a run, or is an end of its claim:"
    yield ""
    yield "| what fails | then |"
    yield "| --- | --- |"
    for what, how in _NO_ROW:
        yield f"| {what} | {how} |"
    yield ""
    yield "A job that a claim's end drives off goes back to the queue with one of these codes as VacateReasonCode:"
    yield ""
    yield "| reason | code |"
    yield "| --- | --- |"
    for reason in VacateReason:
        if reason:
            yield f"| {reason.name.lower()} | {reason.value} |"
    yield ""
    yield "Docker that does not work is not offered: HasDocker is false and DockerOfflineReason says why. It is tried"
    yield f"again after {FIRST_S:.0f} s, and after each failure in a row twice as late, after {LONGEST_S:.0f} s at the"
    yield "latest. A job that starts ends the row."


if __name__ == "__main__":
    for line in page():
        print(line)  # noqa: T201

"""What a submit file becomes with `roost submit -interactive` (TLS-14): a job that holds a slot for a shell beside it.

The job waits a while for the shell, and then until the shell has ended: it looks at the shell's process, which is in
its own PID namespace or container, so it ends too when the user's terminal, the gateway or the visit went away.
"""

from __future__ import annotations

from typing import Final

from roost.errors import UsageError
from roost.submit.description import Cluster

#: Has the shell's process id, in the job's scratch directory.
_MARK: Final = ".roost_interactive"
#: Seconds that the job waits for a shell, as HTCondor's does.
PATIENCE_S: Final = 180
#: Landlock lets the job see the shell but not signal it, so no kill -0. No quotes (an empty IFS
#: keeps names with blanks whole), no $( of the submit language.
_JOB: Final = (
    f"IFS=; m=${{_CONDOR_SCRATCH_DIR:-.}}/{_MARK}; i=; "
    f"while test ! -s $m; do test ${{#i}} -lt {PATIENCE_S} || exit 0; i=x$i; sleep 1; done; "
    "read p < $m; while test -d /proc/$p; do sleep 1; done; rm -f $m"
)
#: The shell: the image may have bash, and it has sh. exec keeps the process id.
_SHELL: Final = (
    f'm="${{_CONDOR_SCRATCH_DIR:-.}}/{_MARK}"; echo $$ > "$m.new" && mv "$m.new" "$m" || exit 1; '
    "command -v bash > /dev/null && exec bash -i; exec sh -i"
)
#: Without a terminal: commands come from standard input.
_SHELL_OF_PIPE: Final = _SHELL.replace("bash -i", "bash").replace("sh -i", "sh")
#: A whole submit file, where neither a file nor INTERACTIVE_SUBMIT_FILE is given.
TEXT: Final = "universe = vanilla\nqueue\n"
#: Lines that count as written before the queue statement, whatever the file says.
LINES: Final = (
    "executable = /bin/sh",
    "transfer_executable = false",
    f"arguments = \"-c '{_JOB}'\"",
    "description = interactive job",
    "MY.InteractiveJob = true",
    "hold = false",
)


def shell(*, terminal: bool) -> list[str]:
    """What a visit to the job runs."""
    return ["/bin/sh", "-c", _SHELL if terminal else _SHELL_OF_PIPE]


def check(clusters: list[Cluster]) -> None:
    """Raises UsageError unless the file makes one job."""
    jobs = sum(len(cluster.procs) for cluster in clusters)
    if jobs != 1:
        raise UsageError(f"-interactive is for one job, and the file queues {jobs}: end it with `queue`")

"""Options of HTCondor's tools that commands here do not have, or that change nothing here.

What an option's command neither has nor lists here is an unknown one. Tests compare this with the options that commands
take, and with those that the manual has; docs/effects-tools.md is made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shared.effects import Answer, by_name

_BY_NAME: Final = Answer("daemons go by names: -name NAME", "-addr -address")
_NO_MASTER: Final = Answer("a master takes no orders: name daemons, or -all", "-master")
_NO_PROGRAM: Final = Answer("a daemon that ends starts no other program: its supervisor has hooks for that", "-exec")
_COLUMNS: Final = Answer("`-af ATTR...` prints just these columns, and a print file any others (-print-format)", "-aaf")
_OUTCOMES: Final = Answer("each job is answered in a line of its own, or by -json", "-long -totals")
_NO_ANNEX: Final = Answer("there are no annexes: -constraint EXPR chooses machines", "-annex")

#: Of every command.
EVERYWHERE: Final = (_BY_NAME,)
#: Command -> options of HTCondor's tool that it does not have: what there is in their place.
NONE: Final[Mapping[str, tuple[Answer, ...]]] = {
    "adstash": (
        Answer("it logs to standard error: send that where it shall be", "-log_file -log_level"),
        Answer("there is one checkpoint: -checkpoint_file", "-checkpoint_dir"),
        Answer("it asks the pool that -pool names", "-collectors"),
        Answer("histories are those of access points", "-startds -startd_history -schedd_history"),
        Answer(
            "it goes on where it was, however much there is",
            "-schedd_history_max_ads -startd_history_max_ads -schedd_history_timeout -startd_history_timeout",
        ),
        Answer("one process reads one history after the other", "-threads"),
        Answer("mappings of fields are made with the index", "-se_no_log_mappings"),
    ),
    "config-val": (
        Answer("-dump shows what is set", "-summary"),
        Answer("expressions are evaluated where they are used: `roost status -direct NAME -af EXPR`", "-evaluate"),
        Answer("-check tells what has no effect", "-used -unused"),
        Answer("-verbose tells file and line, -dump all that is set", "-config -writeconfig"),
        Answer("write NAME = TEXT into a file of the configuration, and ask for NAME", "-macro"),
        Answer("names are printed as they are declared", "-mixedcase"),
        _NO_MASTER,
    ),
    "continue": (_OUTCOMES,),
    "exec": (
        Answer(
            "it is for ssh, and there is none on this way: the gateway carries what is typed and shown",
            "-ssh -keygen-options -shells -x",
        ),
    ),
    "history": (_COLUMNS,),
    "hold": (_OUTCOMES, Answer("a user's hold has HoldReasonCode 1 and HoldReasonSubCode 0: -reason TEXT", "-subcode")),
    "off": (_NO_MASTER, _NO_PROGRAM, _NO_ANNEX, Answer("-fast ends what does not end by itself", "-force-graceful")),
    "on": (_NO_MASTER, _NO_ANNEX),
    "ping": (
        Answer("the gateway answers for all daemons", "-name -type"),
        Answer("the answer is a line a level; the exit code tells the same", "-quiet -table"),
        Answer("_CONDOR_<knob> in the environment sets a knob", "-config"),
    ),
    "q": (
        _COLUMNS,
        Answer("`roost wait -log FILE -status` reads a log of jobs", "-userlog"),
        Answer("`roost analyze` tells of each job whether any slot suits it", "-unmatchable"),
    ),
    "reconfig": (_NO_MASTER, Answer("all of the configuration is read again", "-full")),
    "release": (_OUTCOMES,),
    "restart": (_NO_MASTER, _NO_PROGRAM, _NO_ANNEX, Answer("a restart ends no job", "-force-graceful")),
    "rm": (_OUTCOMES,),
    "status": (
        _COLUMNS,
        _NO_ANNEX,
        Answer("the question is its options and -constraint EXPR; nothing is added", "-diagnose"),
        Answer("the ads of two times are compared by -long into two files", "-merge"),
        Answer("-direct NAME shows all that a daemon tells", "-snapshot"),
        Answer("slots that are broken are offline or gone: -af Name OfflineReason", "-broken"),
        Answer("it is of volumes of LVM: `-af Name Disk TotalDisk` tells of space", "-lvm"),
    ),
    "store-cred": (
        Answer("there is no pool password, nor one of Windows: tokens of services are kept (-s SERVICE)", "-c -p"),
        Answer("a token is its user's who brings it", "-u"),
        Answer("there are no handles: one token a service", "-H"),
        Answer("a token has the rights and servers that it was made for", "-S -A"),
        Answer("there is no condor_credd: -n SCHEDD names the access point", "-f -d"),
    ),
    "submit": (
        Answer("there is no MyProxy", "-password"),
        Answer("-spool sends files to the schedd, the only way there is", "-stm"),
        Answer("`roost submit -help` tells all that this pool takes", "-capabilities"),
    ),
    "submit-dag": (
        Answer("Roost's own manager runs DAGs", "-dagman -valgrind"),
        Answer("DAGs run where the schedd has their files: submit them on its machine", "-r"),
        Answer("FILE.dagman.out lies beside FILE", "-outfile_dir"),
        Answer("`roost dag rescue FILE` writes a rescue file", "-DumpRescue"),
        Answer("the schedd of the pool's gateway is asked (-pool)", "-schedd-daemon-ad-file -schedd-address-file"),
        Answer("-dorescuefrom names a rescue file by its number, -load_save a save point file", "-RescueFile"),
        Answer("the manager locks FILE.journal", "-Lockfile"),
        Answer("HOLD scripts run as soon as their jobs are held, without a limit", "-maxhold"),
        Answer("the manager submits the nodes itself, by the gateway", "-SubmitMethod"),
    ),
    "suspend": (_OUTCOMES,),
    "tail": (Answer("-stderr shows the error output alone", "-no-stdout"),),
    "token": (
        Answer("-pool names the gateway that makes it", "-name -type"),
        Answer("`token create` prints the token: send that where it shall be, or -token FILE", "-file"),
    ),
    "transfer-data": (Answer("name clusters and jobs: `roost q -af:j JobStatus` has their ids", "-all -constraint"),),
    "vacate": (),
    "vacate-job": (_OUTCOMES,),
    "version": (Answer("`roost status -af Machine Arch OpSysAndVer` tells of machines", "-arch -opsys -syscall"),),
    "wait": (Answer("-echo prints all events", "-allevents"),),
    "who": (
        Answer("`roost status` shows daemons, systemd or Docker processes", "-daemons -pid -allpids -ancestors"),
        Answer("-json has all there is", "-long -xml -format -autoformat -af -job -jobs"),
        Answer("it asks the pool, not this machine's logs", "-log -quick -diagnostic -wait"),
        Answer("`roost status -constraint EXPR` chooses slots", "-constraint"),
        Answer("each line has it", "-verbose"),
    ),
}

#: Taken, and nothing is otherwise: why.
IDLE: Final[Mapping[str, tuple[Answer, ...]]] = {
    "history": (
        Answer("the schedd of the pool's gateway is asked", "-local"),
        Answer("jobs are shown as they come", "-stream-results"),
    ),
    "q": (
        Answer("messages are short", "-expert"),
        Answer("jobs are shown as they come", "-stream-results"),
        Answer("-name chooses a schedd", "-schedd-constraint"),
        Answer("priorities are not asked for", "-nouserprios"),
    ),
    "status": (
        Answer("messages are short", "-expert"),
        Answer("numbers in names sort as numbers", "-natural"),
        Answer("daemons tell all that they count", "-statistics"),
    ),
    "submit": (Answer("files are looked at where they are used", "-disable"),),
    "submit-dag": (
        Answer("FILE.dagman.out tells what is done, at no level", "-debug"),
        Answer("no submit file is written", "-update_submit"),
        Answer("inner DAGs are read when their node begins", "-no_recurse -do_recurse"),
        Answer("the manager is of the command's version", "-allowversionmismatch"),
        Answer("a DAG goes on where it was by itself", "-DoRecovery"),
    ),
}

#: Under HTCondor's names, condor_q, condor_rm, ..., also these; of all commands DEBUG, but of those with a -debug.
LEFT_OUT: Final[Mapping[str, tuple[Answer, ...]]] = {
    "exec": (
        Answer("a visit waits for its job by itself", "-auto-retry"),
        Answer("a visit leaves nothing behind", "-remove-on-interrupt"),
    ),
    "tail": (Answer("a visit waits for its job by itself", "-auto-retry"),),
}
DEBUG: Final = Answer("daemons have logs (<SUBSYS>_DEBUG), commands none", "-debug")
HAVE_DEBUG: Final = frozenset(("submit", "submit-dag", "power"))


def left_out(command: str) -> Mapping[str, str]:
    """What is left out of the command line of HTCondor's tool before our command reads it, and why."""
    return by_name((*LEFT_OUT.get(command, ()), *(() if command in HAVE_DEBUG else (DEBUG,))))


def instead(command: str, name: str) -> str:
    """What there is in place of an option, by its name without dashes or a beginning of it; empty: it is unknown."""
    known = by_name((*NONE.get(command, ()), *EVERYWHERE))
    begun = [option for option in known if option.lower().startswith(f"-{name.lower()}")]
    return known.get(f"-{name}") or (known[begun[0]] if len(begun) == 1 and len(name) > 1 else "")

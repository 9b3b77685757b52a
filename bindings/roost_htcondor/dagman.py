"""DAGs: Submit.from_dag, whose options are those of `roost submit-dag`, and DAGMan, which gives orders to one that
runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from roost.cli import submit_dag
from roost.cli.effects import instead
from roost.cli.options import Option, parse
from roost.dag.beginning import begin
from roost.dag.journal import Record, read_dag, read_journal
from roost.dag.rescue_files import halt_path
from roost.submission import shares_files
from roost_htcondor.gateway import HTCondorException, gateway, refuse
from shared.classad import ClassAd, unparse
from shared.errors import RoostError
from shared.job_text import words_v2

#: Option, as HTCondor's modules call it -> as `roost submit-dag` does; what a false one becomes stands behind a bar.
_NAMES: Final = {
    "AddToEnv": "insert_env",
    "AllowVersionMismatch": "allowversionmismatch",
    "AppendFile": "insert_sub_file",
    "AppendLines": "append",
    "AutoRescue": "autorescue",
    "BatchName": "batch-name",
    "ConfigFile": "config",
    "DebugLevel": "debug",
    "DoRecovery": "DoRecovery",
    "DoRescueFrom": "dorescuefrom",
    "Force": "force",
    "GetFromEnv": "include_env",
    "ImportEnv": "import_env",
    "MaxIdle": "maxidle",
    "MaxJobs": "maxjobs",
    "MaxPost": "maxpost",
    "MaxPre": "maxpre",
    "Notification": "notification",
    "PostRun": "AlwaysRunPost|DontAlwaysRunPost",
    "Priority": "priority",
    "Recurse": "do_recurse|no_recurse",
    "SaveFile": "load_save",
    "SuppressNotification": "suppress_notification|dont_suppress_notification",
    "UpdateSubmit": "update_submit",
    "UseDagDir": "usedagdir",
    "Verbose": "verbose",
}
#: As the older module calls them where that is neither of both.
_OLDER: Final = {"dorecov": "DoRecovery"}
#: Of HTCondor's, and not here -> by which name the reason is known.
_MISSING: Final = {
    "DagmanPath": "dagman",
    "dagman": "dagman",
    "OutfileDir": "outfile_dir",
    "outfile_dir": "outfile_dir",
    "RunValgrind": "valgrind",
    "valgrind": "valgrind",
    "RemoteSchedd": "r",
    "ScheddAddressFile": "schedd-address-file",
    "schedd-address-file": "schedd-address-file",
    "ScheddDaemonAdFile": "schedd-daemon-ad-file",
    "schedd-daemon-ad-file": "schedd-daemon-ad-file",
    "LockFile": "Lockfile",
    "MaxHold": "maxhold",
    "RescueFile": "RescueFile",
    "SubmitMethod": "SubmitMethod",
    "DumpRescueDag": "DumpRescue",
    "DumpRescue": "DumpRescue",
}
_OPTIONS: Final = {name: option for option in submit_dag.OPTIONS for name in option.names}
#: Attribute of a DAG's line in the queue -> the command that says it. Others are said as they are (MY.).
_COMMANDS: Final = {
    "Cmd": "executable",
    "Arguments": "arguments",
    "Environment": "environment",
    "Iwd": "initialdir",
    "In": "input",
    "Out": "output",
    "Err": "error",
    "UserLog": "log",
    "KillSig": "kill_sig",
    "RemoveKillSig": "remove_kill_sig",
    "HoldKillSig": "hold_kill_sig",
    "OnExitRemove": "on_exit_remove",
}
#: What the submit language says of each job by itself.
_IMPLIED: Final = frozenset(["MyType", "TargetType", "JobUniverse", "Requirements", "Rank", "RequestCpus"])


def commands_of_dag(filename: str, options: Mapping[str, int | bool | str]) -> dict[str, str]:
    """The commands of a submit description of a DAG's line in the queue. Its journal is written, as HTCondor's module
    writes a submit file. options: as Submit.from_dag has them. Raises HTCondorException; KeyError for what is no
    option, TypeError and ValueError for what is no value of one."""
    if not isinstance(options, Mapping):
        raise TypeError("options is a dict of options of roost submit-dag, see Submit.from_dag_options")
    if not Path(filename).exists():
        raise HTCondorException(f"the DAG {filename} does not exist")
    words = [word for key, value in options.items() for word in _words(key, value)]
    try:
        parsed = parse([*words, "--", str(filename)], submit_dag.OPTIONS)
        directory, files = submit_dag.place(parsed)
        dag = read_dag(files, "", str(directory))
        begun = begin(files, directory, submit_dag.wishes(parsed), _is_queued, dag)
    except (RoostError, OSError) as error:
        raise HTCondorException(str(error)) from error
    return _commands(begun.ad)


def _is_queued(record: Record) -> bool:
    with gateway() as client:
        return submit_dag.is_queued(client, record)


def _words(key: object, value: object) -> list[str]:
    """An option as `roost submit-dag` takes it."""
    if not isinstance(key, str):
        raise TypeError("the names of options are strings")
    if not key:
        raise ValueError("an option has no name")
    if not isinstance(value, int | str):
        raise TypeError(f"{key}: the value of an option is a bool, an int or a str, not {value!r}")
    names = _named(key)
    option = _OPTIONS[names[0]]
    if not option.takes:
        return [f"-{names[0]}"] if _truth(key, value) else [f"-{name}" for name in names[1:]]
    if _kind(option) == "int" and not re.fullmatch(r"\s*[+-]?\d+\s*", str(value)):
        raise TypeError(f"{key} is a whole number, not {value!r}")
    return [f"-{names[0]}", str(value)]


def _named(key: str) -> list[str]:
    """Our names of an option: of a true one, and of a false one where that says something."""
    folded = key.lower()
    for name, ours in _NAMES.items():
        words = ours.split("|")
        if folded in (name.lower(), words[0].lower()) or _OLDER.get(folded) == name:
            return words
    for name, known in _MISSING.items():
        if folded == name.lower():
            refuse(f"the option {key} of a DAG", instead("submit-dag", known))
    raise KeyError(f"{key} is no option of a DAG: Submit.from_dag_options() prints those that there are")


def _truth(key: str, value: int | str) -> bool:
    if isinstance(value, str):
        if value.lower() not in ("true", "false", "1", "0", "t", "f", "yes", "no"):
            raise TypeError(f"{key} is true or false, not {value!r}")
        return value.lower() in ("true", "1", "t", "yes")
    return bool(value)


def table_of_options() -> str:
    """The options of a DAG, a line each: name, kind of its value, what it does."""
    lines = [f"{'Option':<22}{'Value':<7}Description"]
    for name, ours in _NAMES.items():
        option = _OPTIONS[ours.partition("|")[0]]
        lines.append(f"{name:<22}{_kind(option):<7}{option.help}")
    return "\n".join(lines)


def _kind(option: Option) -> str:
    if not option.takes:
        return "bool"
    return "int" if option.metavar in ("NUMBER", "0|1") else "str"


def _commands(line: ClassAd) -> dict[str, str]:
    found = {"universe": "scheduler"}
    for name, expr in line.exprs():
        value = line.eval(name)
        if name in _IMPLIED or (name == "LeaveJobInQueue" and value is False):
            continue
        if name in ("Arguments", "Environment"):
            text = '"' + str(value).replace('"', '""') + '"'
        elif name in _COMMANDS and isinstance(value, str):
            text = value
        else:
            text = unparse(expr, "old")
        found[_COMMANDS.get(name, f"MY.{name}")] = text.replace("$", "$(DOLLAR)")
    return found


class DAGMan:
    """A DAG that runs, by the number of its line in the queue. Its files must be on this machine."""

    def __init__(self, dag_id: int) -> None:
        if not isinstance(dag_id, int) or isinstance(dag_id, bool):
            raise TypeError("dag_id is the ClusterId of a DAG, an int")
        self._dag_id = dag_id

    @property
    def dag_id(self) -> int:
        return self._dag_id

    def halt(self, reason: str | None = None, pause: bool | None = None) -> tuple[bool, str]:
        """Have no node begin until `resume`: whether that is done, and a sentence. reason: what FILE.dagman.out says of
        it. pause: refused."""
        if pause:
            refuse(
                "DAGMan.halt(pause=True)", "Schedd.act(JobAction.Hold, dag_id) ends the manager until it is released"
            )
        file, why = self._file()
        if file is None:
            return False, why
        halt_path(file).write_text(f"{reason}\n" if reason else "")
        return True, f"Halted DAG {self._dag_id}"

    def resume(self) -> tuple[bool, str]:
        """Go on with it: whether that is done, and a sentence."""
        file, why = self._file()
        if file is None:
            return False, why
        halt_path(file).unlink(missing_ok=True)
        return True, f"Resumed DAG {self._dag_id}"

    def throttle(self, **_: int | None) -> str:
        """Refused: limits are those that the DAG began with."""
        refuse("DAGMan.throttle", "give MaxJobs, MaxIdle, MaxPre and MaxPost to Submit.from_dag, or as DAGMAN_ knobs")

    def _file(self) -> tuple[Path | None, str]:
        """Its first file, or why that is not to be had."""
        try:
            with gateway() as client:
                ads = list(client.jobs(str(self._dag_id), projection=["Iwd", "Arguments", "JobUniverse"]))
                shared = shares_files(client.schedd())
        except HTCondorException as error:
            return None, str(error)
        words = words_v2(str(ads[0].eval("Arguments"))) if ads and ads[0].eval("JobUniverse") == 7 else []
        if words[:2] != ["-m", "roost.dag"]:
            return None, f"job {self._dag_id} is no DAG in the queue"
        file = Path(str(ads[0].eval("Iwd")), words[-1])
        record = read_journal(Path(f"{file}.journal")) if shared else None
        if record is None or record.job not in (0, self._dag_id):
            return None, f"{file} is not on this machine: give the order on that of its access point"
        return file, ""

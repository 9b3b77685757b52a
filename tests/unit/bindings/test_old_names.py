"""Every name that HTCondor's documents give the older modules is in Roost's: it works, or says what there is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BINDINGS = Path(__file__).resolve().parents[3] / "bindings"
#: Module -> name -> its methods and attributes; "": functions, constants and exceptions.
NAMES = {
    "htcondor": {
        "Collector": "locate locateAll query directQuery advertise",
        "Schedd": "transaction query xquery act edit history submit submitMany spool retrieve refreshGSIProxy "
        "negotiate reschedule export_jobs import_exported_job_results unexport_jobs jobEpochHistory",
        "ScheddNegotiate": "sendClaim disconnect",
        "QueryIterator": "nextAdsNonBlocking tag done watch",
        "Submit": "queue queue_with_itemdata expand jobs procs itemdata getQArgs setQArgs from_dag keys "
        "values items get update setdefault",
        "SubmitResult": "cluster clusterad first_proc num_procs",
        "Negotiator": "deleteUser getPriorities getResourceUsage resetAllUsage resetUsage setBeginUsage "
        "setLastUsage setFactor setPriority setUsage",
        "Startd": "drainJobs cancelDrainJobs",
        "Claim": "requestCOD activate release suspend resume renew deactivate delegateGSIProxy",
        "SecMan": "invalidateAllSessions ping getCommandString setConfig setGSICredential setPoolPassword "
        "setTag setToken",
        "Token": "write",
        "TokenRequest": "submit done result",
        "Credd": "add_password delete_password query_password add_user_cred add_user_service_cred "
        "delete_user_cred delete_user_service_cred query_user_cred query_user_service_cred "
        "check_user_service_creds",
        "JobEventLog": "events close",
        "JobEvent": "type cluster proc timestamp get keys values items",
        "RemoteParam": "refresh",
        "": "DaemonTypes AdTypes JobAction TransactionFlags QueryOpts BlockingMode HistoryIterator poll "
        "BulkQueryIterator QueueItemsIterator DrainTypes VacateTypes JobEventType "
        "FileTransferEventType param reload_config platform version enable_debug enable_log log "
        "LogLevel send_command DaemonCommands send_alive set_subsystem SubsystemType lock FileLock "
        "LockType LogReader EventIterator EntryType read_events enable_classad_extensions CredTypes "
        "CredCheck JobStatus CompletionType RequestIterator HTCondorException HTCondorEnumError "
        "HTCondorInternalError HTCondorIOError HTCondorLocateError HTCondorReplyError "
        "HTCondorTypeError HTCondorValueError __version__",
    },
    "htcondor.personal": {
        "PersonalPool": "attach collector detach get_config_val initialize run_command schedd start stop use_config "
        "who",
        "PersonalPoolState": "UNINITIALIZED INITIALIZED STARTING READY STOPPING STOPPED",
        "SetCondorConfig": "set unset",
    },
    "htcondor.dags": {
        "": "BaseEdge BaseNode DAG DAGAbortCondition DotConfig FinalNode Grouper ManyToMany NodeLayer "
        "NodeNameFormatter NodeStatusFile Nodes OneToOne Script SimpleFormatter Slicer SubDAG "
        "WalkOrder find_rescue_file rescue write_dag exceptions",
    },
    "classad": {
        "ClassAd": "eval lookup printOld printJson flatten matches symmetricMatch externalRefs internalRefs",
        "ExprTree": "and_ or_ is_ isnt_ sameAs eval simplify",
        "": "Value parseAds parseNext parseOne quote unquote Attribute Function Literal lastError "
        "register registerLibrary Parser version ClassAdException ClassAdEnumError "
        "ClassAdEvaluationError ClassAdInternalError ClassAdOSError ClassAdParseError "
        "ClassAdTypeError ClassAdValueError parse parseOld",
    },
}
PROGRAM = """
import importlib, json, sys
lacks, silent = [], []
for module, names in json.load(sys.stdin).items():
    have = importlib.import_module(module)
    for holder, words in names.items():
        thing = getattr(have, holder, None) if holder else have
        lacks += [f"{module}.{holder}.{word}" for word in words.split() if not hasattr(thing, word)]
import htcondor
from roost_htcondor import old_names
for name in dir(old_names):
    thing = getattr(old_names, name)
    if (thing.__doc__ or "").startswith("Refused"):
        assert getattr(htcondor, name) is thing
        try:
            thing(1, other=2)
        except htcondor.HTCondorException as error:
            if f"htcondor.{name} is not in Roost: " not in str(error):
                silent.append(str(error))
        else:
            silent.append(name)
print(json.dumps([lacks, silent]))
"""


def run(program: str, told: str = "") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, (BINDINGS / "modules", BINDINGS, BINDINGS.parent)))
    return subprocess.run(
        [sys.executable, "-c", program],
        input=told,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_is_there_and_what_can_not_be_used_says_what_to_use():
    done = run(PROGRAM, json.dumps(NAMES))
    assert done.returncode == 0, done.stderr
    lacks, silent = json.loads(done.stdout)
    assert (lacks, silent) == ([], [])


@pytest.mark.parametrize("module", ["htcondor", "htcondor2"])
def test_htchirp_says_which_distribution_it_is(module):
    done = run(f"from {module} import htchirp")
    if done.returncode:
        assert f"{module}.htchirp is the distribution htchirp: pip install htchirp" in done.stderr

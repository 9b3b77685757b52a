"""DAGs as the real condor_dagman runs them and as ours: the same files and options in a pool of HTCondor's own daemons
and in a personal pool. Compared are exit codes, what ran and (where the DAG orders it) in which order, the rescue file,
the node status file, the jobstate log, the metrics, the picture, and the events of each node in the DAG's log. What
differs in every run (times, numbers of clusters, hosts, directories) is masked.

Together the DAGs have every keyword of the language.
"""

from __future__ import annotations

import json
import random
import re
import shlex
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from shared.classad import parse_ads
from tests.integration.inside import InsidePool
from tests.reference.daemons import Daemons
from tests.reference.family import Case, Facts, Family
from tests.reference.pool import Shell

#: Seconds that all DAGs together may take.
PATIENCE_S: Final = 260.0


@dataclass(frozen=True, slots=True)
class Workflow:
    """A DAG file `it.dag` and what it needs, the options of its submits (one each), and whether these order all."""

    dag: str
    runs: tuple[str, ...] = ("",)
    files: Mapping[str, str] = field(default_factory=dict)
    ordered: bool = True


#: Notes that it ran, and exits as the next line of NODE.codes says.
WORK: Final = """#!/bin/sh
echo "$@" >> order
[ -f $1.codes ] || exit 0
code=$(head -n 1 $1.codes); sed -i 1d $1.codes; exit ${code:-0}
"""
NOTE: Final = """#!/bin/sh
echo "$@" >> order
[ $1 != fails ]
"""
NODE: Final = """executable = work.sh
arguments = $(JOB) $(word)
transfer_executable = false
should_transfer_files = no
initialdir = HERE
log = HERE/node.log
request_cpus = 1
request_memory = 1
request_disk = 1
"""
_COMMON: Final = {"work.sh": WORK, "note.sh": NOTE, "node.sub": NODE + "queue\n"}


def nodes(names: str) -> str:
    return "".join(f"JOB {name} node.sub\n" for name in names)


def chain(names: str) -> str:
    return nodes(names) + "".join(f"PARENT {one} CHILD {two}\n" for one, two in pairwise(names))


_FILES: Final = "NODE_STATUS_FILE it.status 1 ALWAYS-UPDATE\nJOBSTATE_LOG it.jobstate\n"

WORKFLOWS: Final[dict[str, Workflow]] = {
    "diamond": Workflow(
        nodes("ABCD") + "PARENT A CHILD B C\nPARENT B C CHILD D\n" + _FILES + "DOT it.dot\n", ordered=False
    ),
    "scripts": Workflow(
        chain("ABC") + _FILES + "SCRIPT PRE A note.sh pre $JOB $RETRY $MAX_RETRIES $DAG_STATUS $FAILED_COUNT\n"
        "SCRIPT POST A note.sh post $JOB $RETURN $PRE_SCRIPT_RETURN $RETRY $DAG_STATUS\n"
        "SCRIPT PRE B note.sh fails $JOB\nSCRIPT POST B note.sh post $JOB $RETURN $PRE_SCRIPT_RETURN\n"
        "SCRIPT POST C note.sh post $JOB $RETURN\n",
        files={"C.codes": "7\n"}, runs=("-AlwaysRunPost",),
    ),
    "pre fails": Workflow(chain("ABC") + _FILES + "SCRIPT PRE B note.sh fails $JOB\nSCRIPT POST B note.sh post $JOB\n"),
    "post fails": Workflow(chain("AB") + _FILES + "SCRIPT POST A note.sh fails $JOB $RETURN\nRETRY A 1\n"),
    "pre skip": Workflow(
        chain("ABC") + _FILES + "SCRIPT PRE B note.sh fails $JOB\nPRE_SKIP B 1\nSCRIPT POST B note.sh post $JOB\n"
    ),
    "retry": Workflow(chain("AB") + _FILES + "RETRY A 2\n", files={"A.codes": "1\n2\n0\n"}),
    "retry in vain": Workflow(chain("AB") + _FILES + "RETRY A 2\n", files={"A.codes": "1\n2\n3\n"}),
    "unless exit": Workflow(chain("AB") + _FILES + "RETRY A 5 UNLESS-EXIT 2\n", files={"A.codes": "1\n2\n0\n"}),
    "fails and is rescued": Workflow(
        chain("ABC") + "JOB X node.sub\nPARENT A CHILD X\nRETRY B 1\n" + _FILES,
        files={"B.codes": "4\n5\n0\n"}, runs=("", ""), ordered=False,
    ),
    "abort": Workflow(
        chain("ABC") + "ABORT-DAG-ON B 3 RETURN 17\nFINAL F node.sub\n" + _FILES, files={"B.codes": "3\n"}
    ),
    "abort well": Workflow(chain("ABC") + "ABORT-DAG-ON B 3 RETURN 0\n" + _FILES, files={"B.codes": "3\n"}),
    "abort on retry": Workflow(
        chain("AB") + "RETRY A 3\nABORT-DAG-ON A 2\n" + _FILES, files={"A.codes": "1\n2\n"}
    ),
    "final": Workflow(
        chain("AB") + "FINAL F node.sub\nSCRIPT PRE F note.sh pre $JOB $DAG_STATUS $FAILED_COUNT\n"
        "SCRIPT POST F note.sh post $DAG_STATUS $FAILED_COUNT\n" + _FILES,
        files={"A.codes": "1\n"},
    ),
    "final fails": Workflow(chain("AB") + "FINAL F node.sub\n" + _FILES, files={"F.codes": "9\n"}),
    "priorities": Workflow(
        nodes("ABCD") + "JOB Z node.sub\nPARENT Z CHILD A B C D\nPRIORITY B 20\nPRIORITY D 10\nPRIORITY C 5\n" + _FILES,
        runs=("-maxjobs 1",),
    ),
    "categories": Workflow(
        nodes("ABCD") + "CATEGORY ALL_NODES slow\nMAXJOBS slow 1\n" + _FILES, ordered=False
    ),
    "variables": Workflow(
        chain("AB") + 'VARS A word="one two" unused="x"\nVARS B word="$(JOB)-$(RETRY)"\nRETRY B 1\n'
        'VARS ALL_NODES more="1"\n' + _FILES,
        files={"B.codes": "1\n0\n"},
    ),
    "inline": Workflow(
        "SUBMIT-DESCRIPTION shared {\n" + NODE + "}\nJOB A shared\nJOB B {\n" + NODE + "}\nPARENT A CHILD B\n"
        "SET_JOB_ATTR Told = 7\nENV SET Own=1\nENV GET HOME\n" + _FILES
    ),
    "splice": Workflow(
        nodes("AZ") + "SPLICE S inner.dag\nPARENT A CHILD S\nPARENT S CHILD Z\n" + _FILES,
        files={"inner.dag": chain("XY")},
    ),
    "pins": Workflow(
        "SPLICE S one.dag\nSPLICE T two.dag\nCONNECT S T\n" + _FILES,
        files={
            "one.dag": nodes("XY") + "PIN_OUT X 1\nPIN_OUT Y 2\n",
            "two.dag": nodes("VW") + "PIN_IN V 1\nPIN_IN W 2\n",
        },
        ordered=False,
    ),
    "include": Workflow(nodes("A") + "INCLUDE more.dag\nPARENT A CHILD B\n" + _FILES, files={"more.dag": nodes("B")}),
    "inner DAG": Workflow(
        nodes("AZ") + "SUBDAG EXTERNAL S inner.dag\nPARENT A CHILD S\nPARENT S CHILD Z\n" + _FILES,
        files={"inner.dag": chain("XY")},
    ),
    "inner DAG fails": Workflow(
        nodes("AZ") + "SUBDAG EXTERNAL S inner.dag\nPARENT A CHILD S\nPARENT S CHILD Z\n" + _FILES,
        files={"inner.dag": chain("XY"), "X.codes": "5\n"},
    ),
    "done and noop": Workflow(
        "JOB A node.sub DONE\nJOB B node.sub NOOP\nJOB C node.sub\nPARENT A CHILD B\nPARENT B CHILD C\n"
        "SCRIPT POST B note.sh post $JOB $RETURN\n" + _FILES
    ),
    "hold": Workflow(
        "JOB A held.sub\nSCRIPT HOLD A note.sh hold $JOB\nJOB B node.sub\nPARENT A CHILD B\n" + _FILES,
        files={"held.sub": NODE + "on_exit_hold = NumJobStarts < 2\nperiodic_release = NumHolds < 2\nqueue\n"},
    ),
    "provisioner": Workflow(
        "PROVISIONER P ready.sub\n" + chain("AB") + _FILES,
        files={
            "ready.sub": NODE.replace("work.sh", "wait.sh") + "+ProvisionerState = 2\nqueue\n",
            "wait.sh": "#!/bin/sh\nsleep 20\n",
        },
    ),
    "service": Workflow(
        "SERVICE S long.sub\n" + chain("AB") + _FILES,
        files={"long.sub": NODE.replace("work.sh", "wait.sh") + "queue\n", "wait.sh": "#!/bin/sh\nsleep 300\n"},
    ),
    "save point": Workflow(chain("ABC") + "SAVE_POINT_FILE B here.save\n" + _FILES),
    "configured": Workflow(
        "CONFIG it.config\n" + nodes("ABC") + _FILES, files={"it.config": "DAGMAN_MAX_JOBS_SUBMITTED = 1\n"}
    ),
    "several procs": Workflow(
        "JOB A three.sub\nJOB B node.sub\nPARENT A CHILD B\nSCRIPT POST A note.sh post $JOB $RETURN\n" + _FILES,
        files={"three.sub": NODE + "queue 3\n"},
    ),
    "deferred script": Workflow(
        chain("AB") + "SCRIPT DEFER 1 1 PRE A once.sh $JOB\n"
        "SCRIPT DEBUG it.debug ALL POST A note.sh post $JOB\n" + _FILES,
        files={"once.sh": "#!/bin/sh\necho pre >> order\n[ -f once ] && exit 0\ntouch once\nexit 1\n"},
    ),
    "reject": Workflow(chain("AB") + "REJECT\n" + _FILES),
    "cycle": Workflow(chain("ABC") + "PARENT C CHILD A\n" + _FILES),
    "idle and pre limits": Workflow(
        nodes("ABC") + "SCRIPT PRE A note.sh pre A\nSCRIPT PRE B note.sh pre B\nSCRIPT PRE C note.sh pre C\n" + _FILES,
        runs=("-maxidle 1 -maxpre 1 -maxpost 1",), ordered=False,
    ),
}  # fmt: skip


class Side:
    """A pool that runs DAGs below a directory."""

    place: str

    def write(self, where: str, name: str, text: str) -> None:
        raise NotImplementedError

    def begin(self, where: str, options: str) -> str:
        """Submit it.dag: empty, or why it is refused."""
        raise NotImplementedError

    def ended(self, where: str) -> bool:
        raise NotImplementedError

    def read(self, where: str) -> dict[str, str]:
        """Files of it, by name, with `exit` for the exit code of its manager."""
        raise NotImplementedError


class Reference(Side):
    place = "/pool/dags"

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        shell.run(f"chmod 1777 /pool/execute; mkdir -p {self.place}; chown 65534:65534 {self.place}")
        shell.start("collector", "negotiator", "schedd", "startd")
        shell.until('[ -n "$(condor_status -af Name)" ]')

    def write(self, where: str, name: str, text: str) -> None:
        path = f"{self.place}/{where}"
        text = text.replace("HERE", path).rstrip("\n")
        self._shell.run(
            f"mkdir -p {path}; cat > {path}/{name} <<'END OF FILE'\n{text}\nEND OF FILE\n"
            f"chmod 755 {path}/{name}; chown 65534:65534 {path} {path}/{name}"
        )

    def begin(self, where: str, options: str) -> str:
        said = self._shell.run(
            f"cd {self.place}/{where} && {{ {AS_USER} condor_submit_dag {options} it.dag || echo REFUSED; }}"
        )
        return said if "REFUSED" in said else ""

    def ended(self, where: str) -> bool:
        return bool(
            self._shell.run(f"cd {self.place}/{where}; grep -c 'EXITING WITH STATUS' it.dag.dagman.out || true").strip(
                "0\n"
            )
        )

    def forget(self, where: str) -> None:
        self._shell.run(f"mv {self.place}/{where}/it.dag.dagman.out {self.place}/{where}/before.out")

    def read(self, where: str) -> dict[str, str]:
        said = self._shell.run(
            f'cd {self.place}/{where}; for f in *; do [ -f "$f" ] || continue; '
            """printf '\\002%s\\003' "$f"; cat "$f"; done"""
        )
        files = dict(one.split("\x03", 1) for one in said.split("\x02")[1:])
        found = re.findall(r"EXITING WITH STATUS (\d+)", files.get("it.dag.dagman.out", ""))
        return files | {"exit": found[-1] if found else ""}


class Ours(Side):
    def __init__(self, pool: InsidePool, directory: Path) -> None:
        self.place = str(directory)
        self._pool = pool
        self._lines: dict[str, str] = {}

    def write(self, where: str, name: str, text: str) -> None:
        path = Path(self.place, where, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("HERE", str(path.parent)))
        path.chmod(0o755)

    def begin(self, where: str, options: str) -> str:
        try:
            said = self._pool.roost("submit-dag", *shlex.split(options), "it.dag", cwd=Path(self.place, where))
        except AssertionError as refused:
            return str(refused)
        self._lines[where] = said.split("cluster ")[1].split(".")[0]
        return ""

    def ended(self, where: str) -> bool:
        with self._pool.client() as client:
            return not [*client.jobs(self._lines[where])]

    def forget(self, where: str) -> None:
        pass

    def read(self, where: str) -> dict[str, str]:
        files = {path.name: path.read_text() for path in Path(self.place, where).iterdir() if path.is_file()}
        with self._pool.client() as client:
            (line,) = client.jobs(self._lines[where], history=True)
        return files | {"exit": str(line.eval("ExitCode"))}


AS_USER: Final = "chroot --userspec=65534:65534 --skip-chdir /"


def play(side: Side, workflows: Mapping[str, Workflow]) -> dict[str, dict[str, str]]:
    """Run these DAGs at once: the files of each, or {"refused": why}."""
    began = time.monotonic()
    waiting: dict[str, tuple[str, ...]] = {}
    found: dict[str, dict[str, str]] = {}
    for name, workflow in workflows.items():
        where = name.replace(" ", "_")
        for file, text in (*_COMMON.items(), *workflow.files.items(), ("it.dag", workflow.dag)):
            side.write(where, file, text)
        refused = side.begin(where, workflow.runs[0])
        if refused:
            found[name] = {"refused": refused}
        else:
            waiting[name] = workflow.runs[1:]
    while waiting and time.monotonic() - began < PATIENCE_S:
        for name, runs in list(waiting.items()):
            where = name.replace(" ", "_")
            if not side.ended(where):
                continue
            if runs:
                side.forget(where)
                side.begin(where, runs[0])
                waiting[name] = runs[1:]
            else:
                del waiting[name]
                found[name] = side.read(where)
        time.sleep(1)
    return found | {name: {"exit": "not ended"} for name in waiting}


def facts(name: str, files: Mapping[str, str]) -> Facts:
    """What is compared of a DAG, by `NAME | FILE | PART`."""
    workflow = WORKFLOWS[name]
    if "refused" in files:  # DAGMan takes such a DAG, and its manager ends at once
        return {f"{name} | exit": "1"}
    told = files.get("order", "").splitlines()
    found: Facts = {
        f"{name} | exit": files["exit"],
        f"{name} | ran": told if workflow.ordered else sorted(told),
        f"{name} | dot": [_masked(line) for line in files.get("it.dot", "").splitlines() if line.strip()],
    }
    parts = {
        "jobstate": jobstate(files.get("it.jobstate", "")),
        "status": status(files.get("it.status", "")),
        "events": events(files.get("it.dag.nodes.log", "")),
        "metrics": metrics(files.get("it.dag.metrics", "")),
    }
    for what, some in parts.items():
        found |= {f"{name} | {what} | {part}": value for part, value in some.items()}
    for file, text in files.items():
        if re.fullmatch(r"it\.dag\.rescue\d+|.*\.save", file):
            lines = [line for line in text.splitlines() if line and "Created" not in line]
            found[f"{name} | {file}"] = lines
    return found


def _masked(line: str) -> str:
    return re.sub(r"\s+", " ", re.sub("status at .*", "", line)).strip()


def jobstate(text: str) -> dict[str, list[str]]:
    """Of each node, and INTERNAL: what was noted, in order. Numbers of jobs are masked."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        _, whose, *rest = line.split()
        if whose == "INTERNAL":
            rest = rest[:2] if rest[1] != "DAGMAN_FINISHED" else rest
            found.setdefault(whose, []).append(" ".join(rest))
            continue
        masked = [re.sub(r"^\d+\.\d+$", "JOB", word) for word in rest]
        found.setdefault(whose, []).append(" ".join(masked))
    return found


def status(text: str) -> dict[str, dict[str, object]]:
    """Of each node, and of the DAG: what the last status file says."""
    found: dict[str, dict[str, object]] = {}
    for ad in parse_ads(text, "new"):
        kind = ad.eval_string("Type")
        if kind == "StatusEnd":
            continue
        found[ad.eval_string("Node") or kind] = {
            name: re.sub(r"\(\d+\.\d+\.\d+\)", "(JOB)", str(ad.eval(name)))
            for name in sorted(ad)
            if name not in ("Timestamp", "DagFiles", "Type")
        }
    return found


def events(text: str) -> dict[str, list[str]]:
    """Of each node of the DAG: the kinds of its jobs' events."""
    names: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    for event in text.split("...\n")[:-1]:
        kind, cluster = event[:3], event[5:].split(".")[0]
        node = re.search(r"DAG Node: (\S+)", event)
        if node is not None:
            names[cluster] = node[1]
        if kind not in ("006", "040"):
            found.setdefault(names.get(cluster, "?"), []).append(kind)
    return {name: sorted(kinds) for name, kinds in found.items()}


_MEASURED: Final = ("start_time", "end_time", "duration", "version", "dagman_id")


def metrics(text: str) -> dict[str, object]:
    told = json.loads(text) if text else {}
    return {name: value for name, value in told.items() if name not in _MEASURED}


CONFIG: Final[Sequence[str]] = (
    *("NEGOTIATOR_INTERVAL = 1", "NEGOTIATOR_MIN_INTERVAL = 1", "NEGOTIATOR_CYCLE_DELAY = 1", "SCHEDD_INTERVAL = 2"),
    *("SCHEDD_MIN_INTERVAL = 1", "PERIODIC_EXPR_INTERVAL = 2", "DAGMAN_USER_LOG_SCAN_INTERVAL = 1"),
    *("NUM_CPUS = 40", "MEMORY = 8000", "NUM_SLOTS_TYPE_1 = 40", "SLOT_TYPE_1 = cpus=1,mem=128"),
    *(
        "SLOT_TYPE_1_PARTITIONABLE = False",
        "DAGMAN_SUBMIT_DELAY = 0",
        "START_SCHEDULER_UNIVERSE = TotalSchedulerJobsRunning < 500",
    ),
)
OF_REFERENCE: Final = (
    *("MOUNT_UNDER_SCRATCH =", "STARTD_ADDRESS_FILE = /pool/log/startd_address", "JOB_START_COUNT = 100"),
    *("MAX_PERIODIC_EXPR_INTERVAL = 2", "PERIODIC_EXPR_TIMESLICE = 1", "SUBMIT_REQUIREMENT_NAMES ="),
)


class DagsReference:
    """A pool of HTCondor's own daemons for each case."""

    def __init__(self) -> None:
        self._daemons = Daemons(alone=False)

    def __enter__(self) -> DagsReference:
        self._daemons.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._daemons.__exit__()

    def ask(self, case: Case) -> Facts | None:
        with Shell(self._daemons, [*CONFIG, *OF_REFERENCE]) as shell:
            return _answers(Reference(shell), case)


def _ours(case: Case) -> Facts:
    with tempfile.TemporaryDirectory(prefix="roost-dags-") as name:
        pool = InsidePool(Path(name) / "pool", **dict(line.split(" = ", 1) for line in CONFIG))
        try:
            (Path(name) / "dags").mkdir()
            return _answers(Ours(pool, Path(name) / "dags"), case)
        finally:
            pool.close()


def _answers(side: Side, case: Case) -> Facts:
    found: Facts = {}
    for name, files in play(side, {name: WORKFLOWS[name] for name in case["workflows"]}).items():
        found |= facts(name, files)
    return found


def _make(rng: random.Random) -> Case:
    """All of them, in some order."""
    names = sorted(WORKFLOWS)
    rng.shuffle(names)
    return {"workflows": names}


_SERVICE: Final = "a SERVICE node that is removed at the end counts among jobs_succeeded there, and not among jobs"
_REFUSED: Final = "what can not run is refused by submit-dag here, and by the manager there, which leaves files"
_FUTILE: Final = "children of a node that UNLESS-EXIT ended will never run: DAGMan has them as waiting"
_ERROR_0: Final = "of a POST script that fails behind a good job DAGMan says that the job failed by DAGMAN error 0"
_DONE: Final = "a node that the DAG has as DONE: DAGMan says so in StatusDetails"
_DUMMY: Final = "nodes without a job (NOOP, PRE_SKIP) are in the log of all nodes as jobs of cluster 0 there"


def known(case: Case, question: str, mine: Any, theirs: Any) -> str:
    name, what, *_ = question.split(" | ")
    if name == "service" and what == "metrics":
        return _SERVICE
    if name in ("cycle", "reject") and mine is None:
        return _REFUSED
    if name == "unless exit" and question.split(" | ")[1:] in (["status", "B"], ["status", "DagStatus"]):
        return _FUTILE
    if what == "status" and "DAGMAN error 0" in str(theirs):
        return _ERROR_0
    if what == "status" and "User defined as DONE" in str(theirs):
        return _DONE
    return _DUMMY if what == "events" and name in ("done and noop", "pre skip") else ""


DAGS: Final = Family("dags", _make, _ours, known, reference=DagsReference)

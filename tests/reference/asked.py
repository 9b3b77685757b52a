"""The reference's side: a process that answers cases, one JSON line each. `Reference` asks it, and starts another one
where a case ended it: HTCondor's library exits on what it refuses, and some texts kill it.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: Families that need the older library: newer ones have no job ads without an access point.
OLDER = frozenset({"submit"})
#: Seconds after which a case is one that the reference does not come back from.
PATIENCE_S = 20.0
ROOT = str(Path(__file__).resolve().parents[2])


class Missing(Exception):
    """The reference's library can not be had."""


def older_library() -> Path:
    """The folder of the older library, which is installed there when it is first needed. Raises Missing."""
    from tests import locked  # not in the other process, which has no way to it

    try:
        return locked.folder_of("requirements-reference.lock", "roost-reference")
    except locked.Missing as missing:
        raise Missing(
            f"HTCondor's library: {missing}\n"
            "Without it the other families can be compared (--family), and the suite's recorded answers."
        ) from None


class Reference:
    """Asks one family's cases. A context manager. Raises Missing where its library can not be had."""

    def __init__(self, family: str) -> None:
        self._family = family
        self._library = older_library() if family in OLDER else None
        self._place = tempfile.TemporaryDirectory(prefix="roost-reference-")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Reference:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._place.cleanup()

    def ask(self, case: dict[str, Any]) -> dict[str, Any] | None:
        """Its answers; None where it ended or did not come back."""
        if self._process is None:
            environment = {"PATH": os.defpath, "HOME": self._place.name, "TZ": "UTC", "CONDOR_CONFIG": "/dev/null"}
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(Path(__file__)), self._family, *map(str, filter(None, [self._library]))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self._place.name,
                env=environment,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(case).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            self._end()
            return None
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
        line = process.stdout.readline() if ready else b""
        if not line:
            self._end()
            return None
        answers: dict[str, Any] = json.loads(line)
        return answers

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _configuration(case: dict[str, Any]) -> dict[str, Any]:
    import htcondor2

    path = Path("pool.conf").absolute()
    path.write_text(case["text"])
    for name in [name for name in os.environ if name.lower().startswith("_condor_")]:
        del os.environ[name]
    os.environ.update(case["environment"], CONDOR_CONFIG=str(path))
    htcondor2.reload_config()
    values: dict[str, Any] = {}
    for name in case["names"]:
        try:
            value = htcondor2.param[name]
        except KeyError:
            value = None
        values[name] = value if value is None or isinstance(value, str) else str(value)
    return values


def _classads(case: dict[str, Any]) -> dict[str, Any]:
    import htcondor2  # noqa: F401  must come first

    import classad2  # isort: skip

    sys.path.append(ROOT)
    from tests.unit.classad.compare import Theirs

    answer = Theirs(classad2)(case["text"], case.get("my"), case.get("target"))
    return {} if answer is None else {"value": _listed(answer[0]), "text": answer[1]}


def _class_ad_api(case: dict[str, Any]) -> dict[str, Any]:
    import htcondor2  # noqa: F401  must come first

    import classad2  # isort: skip

    sys.path.append(ROOT)
    from tests.reference.class_ad_api import answers

    return answers(classad2, case)


def _listed(value: Any) -> Any:
    return [_listed(one) for one in value] if isinstance(value, list | tuple) else value


def _event_logs(case: dict[str, Any]) -> dict[str, Any]:
    import htcondor2

    import classad2  # isort: skip

    def plain(value: Any) -> Any:
        if isinstance(value, classad2.ClassAd):
            return {name: plain(one) for name, one in sorted(value.items())}
        if isinstance(value, bool | int | float | str):
            return value
        return repr(value)

    Path("job.log").write_bytes(case["text"].encode("utf-8", "surrogateescape"))
    answers: dict[str, Any] = {}
    number = 0
    try:
        for number, event in enumerate(htcondor2.JobEventLog("job.log").events(stop_after=0), 1):
            kind = event["MyType"]
            answers[f"{number} {kind} timestamp"] = event.timestamp
            answers |= {f"{number} {kind} {name}": plain(value) for name, value in event.items()}
    except htcondor2.HTCondorException:
        answers[f"{number + 1} is bad"] = True
    return answers


def _submit(case: dict[str, Any]) -> dict[str, Any]:
    import classad
    import htcondor

    sys.path.append(ROOT)
    from tests.reference.submit_facts import ENVIRONMENT, FILES, facts

    folder = Path(os.environ["HOME"], "files")
    if not folder.is_dir():
        shutil.copytree(FILES, folder)
    path = folder.parent / "pool.conf"
    path.write_text(case["config"])
    os.environ.update(CONDOR_CONFIG=str(path))
    htcondor.reload_config()
    os.chdir(folder)
    kept = os.environ["HOME"]
    os.environ.clear()
    os.environ.update(ENVIRONMENT)
    try:
        submit = htcondor.Submit(case["text"])
        if submit.getQArgs() is None:
            return {"refused": "no queue"}
        ads = list(submit.jobs(clusterid=1, procid=0, qdate=1, owner="root"))
    except (htcondor.HTCondorException, classad.ClassAdException, RuntimeError, ValueError, SystemError) as error:
        return {"refused": str(error)}
    finally:
        os.environ["HOME"] = kept
    texts = [dict(line.split(" = ", 1) for line in ad.printOld().splitlines()) for ad in ads]
    return facts(texts, str(folder))


def _queries(case: dict[str, Any]) -> dict[str, Any]:
    import htcondor2  # noqa: F401  must come first

    import classad2  # isort: skip

    try:
        constraint = classad2.ExprTree(case["constraint"]) if case["constraint"].strip() else None
    except classad2.ClassAdException as error:
        return {"refused": str(error)}
    answers: dict[str, Any] = {}
    for number, text in enumerate(case["ads"]):
        ad = classad2.parseOne(text)
        value = True if constraint is None else constraint.eval(ad)
        counts = isinstance(value, bool | int | float) and not isinstance(value, classad2.Value)
        fits = answers[f"{number} fits"] = counts and bool(value)
        if fits:
            shown = _needed(ad, case["projection"])
            lines = (line.split(" = ", 1) for line in ad.printOld().splitlines())
            answers |= {f"{number} {name}": said for name, said in lines if not shown or name.lower() in shown}
    return answers


def _needed(ad: Any, projection: list[str]) -> set[str]:
    """What is projected, and what that refers to in the same ad."""
    wanted, found = [name.lower() for name in projection], set()
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            expression = ad.lookup(name) if name in ad else None
            wanted += [one.lower() for one in ad.internalRefs(expression)] if expression is not None else []
    return found


FAMILIES = {
    "queries": _queries,
    "classads": _classads,
    "classad2": _class_ad_api,
    "configuration": _configuration,
    "event-logs": _event_logs,
    "submit": _submit,
}


if __name__ == "__main__":
    answer = FAMILIES[sys.argv[1]]
    sys.path[:0] = sys.argv[2:]  # a library of its own
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints is no answer
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=channel, flush=True)

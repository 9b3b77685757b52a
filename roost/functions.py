"""A Python function as a job: `client.submit_function(simulate, 1000, seed=7).result()`.

The file of the function's module goes to the execution point as it is, with the arguments; python3 there imports it and
calls the function; what it returns comes back. Arguments and result are JSON. That is all: other modules of yours do
not travel (say submit={"transfer_input_files": "helper.py"}), and what the module imports must be installed there, as
it is in a container image (submit={"container_image": ...}). The function must be found in its module by its name, so
no lambda and none of an interactive session.
"""

from __future__ import annotations

import inspect
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from roost.errors import ClientError
from roost.job import Outcome

CALL, RESULT, RUNNER = "roost_call.json", "roost_result.json", "roost_run.py"
_RUN: Final = f"""#!/usr/bin/env python3
import importlib, json, sys, traceback
with open({CALL!r}) as file:
    call = json.load(file)
sys.path.insert(0, ".")
try:
    function = importlib.import_module(call["module"])
    for name in call["function"].split("."):
        function = getattr(function, name)
    answer = {{"value": function(*call["args"], **call["kwargs"])}}
    text = json.dumps(answer)
except BaseException as error:
    text = json.dumps({{"error": f"{{type(error).__name__}}: {{error}}", "traceback": traceback.format_exc()}})
with open({RESULT!r}, "w") as file:
    file.write(text)
"""


class FunctionFailed(Exception):
    """The function raised, or its job did not come to an end by itself. traceback: of the function, where it ran."""

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


@contextmanager
def packed(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], submit: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], Path]]:
    """Submit commands for a call, and the directory with its files. Raises ClientError."""
    module, source = _home(function)
    try:
        call = json.dumps(
            {"module": module, "function": function.__qualname__, "args": list(args), "kwargs": dict(kwargs)}
        )
    except (TypeError, ValueError) as error:
        raise ClientError(f"arguments of a function go as JSON: {error}; write large data to a file") from error
    with tempfile.TemporaryDirectory(prefix="roost-function-") as folder:
        base = Path(folder)
        shutil.copyfile(source, base / f"{module}.py")
        (base / CALL).write_text(call)
        (base / RUNNER).write_text(_RUN)
        (base / RUNNER).chmod(0o755)
        own = {str(name).lower(): value for name, value in submit.items()}
        listed = [name.strip() for name in str(own.pop("transfer_input_files", "")).split(",")]
        files = [f"{module}.py", CALL, *(str(Path(name).absolute()) for name in listed if name)]
        commands = {
            "output": "stdout.txt",
            "error": "stderr.txt",
            "batch_name": function.__qualname__,
            **own,
            "executable": RUNNER,
            "transfer_input_files": ", ".join(files),
            "transfer_output_files": RESULT,
            "should_transfer_files": "YES",
            "when_to_transfer_output": "ON_EXIT",
        }
        yield commands, base


def _home(function: Callable[..., Any]) -> tuple[str, Path]:
    """The module that a job imports the function from, and its file. Raises ClientError."""
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name or not inspect.isfunction(function):
        raise ClientError(f"{name or function!r} can not be run as a job: it takes a function of a module's own level")
    module = sys.modules.get(function.__module__)
    source = getattr(module, "__file__", None)
    if not source or not str(source).endswith(".py") or not Path(source).exists():
        raise ClientError(f"the module of {name} has no file that could be sent: write it to one, and import it")
    # The program itself is imported there under the name of its file, so what stands under __main__ does not run.
    stem = Path(source).stem
    if not stem.isidentifier():
        raise ClientError(f"{source} can not be imported by its name; call it a Python name")
    return stem, Path(source)


def read_result(outcome: Outcome, text: Callable[[], bytes]) -> Any:
    """What the function returned. Raises FunctionFailed."""
    if outcome.status != "completed":
        raise FunctionFailed(f"the job is {outcome.status}: {outcome.reason}")
    if not outcome.ok:
        how = f"signal {outcome.exit_signal}" if outcome.exit_signal is not None else f"exit code {outcome.exit_code}"
        raise FunctionFailed(f"the job ended with {how}; its standard error tells more (job.output('stderr.txt'))")
    answer = json.loads(text())
    if "error" in answer:
        raise FunctionFailed(answer["error"], answer.get("traceback", ""))
    return answer["value"]

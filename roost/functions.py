"""A Python function as a job: `client.submit_function(simulate, 1000, seed=7).result()`.

The file of the function's module goes to the execution point as it is, with the arguments; python3 there imports it and
calls the function; what it returns comes back. Where python3 there lacks what the module imports, the interpreter that
made the call is tried, if it can be reached there. Arguments and result are JSON. That is all: other modules of yours
do not travel (say submit={"transfer_input_files": "helper.py"}), and what the module imports must be installed there,
as it is in a container image (submit={"container_image": ...}). The function must be found in its module by its name,
so no lambda and none of an interactive session: these an executor takes (roost.executor), by cloudpickle.
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import pickle
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from roost.errors import ClientError
from roost.job import Outcome

CALL, RESULT, RUNNER = "roost_call.json", "roost_result.json", "roost_run.py"
#: Of calls of a pool (roost.executor), whose arguments and values are pickled.
PICKLED_RESULT: Final = "roost_result.pickle"
#: The pickle that Python 3.8 reads too.
PROTOCOL: Final = 5
#: cloudpickle, which goes along with functions that have no file, so that it need not be installed there.
CLOUDPICKLE: Final = "roost_cloudpickle.zip"
_RUN: Final = f"""#!/usr/bin/env python3
import importlib, importlib.machinery, importlib.util, io, json, os, pickle, sys, traceback, types

def load(file, name):
    # Under the name that it has where the call was made, so that classes are found by it, here and there.
    parts = name.split(".")
    for end in range(1, len(parts)):
        package = ".".join(parts[:end])
        try:
            importlib.import_module(package)
        except ImportError:
            sys.modules[package] = types.ModuleType(package)
    spec = importlib.util.spec_from_file_location(name, file)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    if name == "__mp_main__":  # as processes of multiprocessing have it: what stands under __main__ does not run
        sys.modules["__main__"] = module
    spec.loader.exec_module(module)
    return module

class Absent:
    def __init__(self, *args, **kwargs):
        raise RuntimeError("roost is not installed where this job runs")

def absent(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Absent

class AbsentRoost:
    # roost and its modules, where they are not installed: the program that makes the calls imports them.
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "roost":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__getattr__ = absent

class Calls(pickle.Unpickler):
    # Values of other calls stand where their futures stood, each one object for the whole call.
    def __init__(self, call):
        super().__init__(io.BytesIO(call["calls"]))
        self.values, self.read = call.get("values") or {{}}, {{}}

    def find_class(self, module, name):
        return self.value if (module, name) == ({__name__!r}, "value_of") else super().find_class(module, name)

    def value(self, name):
        if name not in self.read:
            self.read[name] = pickle.loads(self.values[name])
        return self.read[name]

name = sys.argv[1] if len(sys.argv) > 1 else {CALL!r}
pickled = name.endswith(".pickle")
with open(name, "rb") as file:
    call = pickle.load(file) if pickled else json.load(file)
sys.path.insert(0, ".")
told, dump = None, pickle.dumps

def by_value():
    # A function of a notebook, or within another: its code is of one version of Python.
    global dump
    here, there = ".".join(map(str, sys.version_info[:2])), call["version"]
    if here != there:
        raise ImportError("a function without a file runs on the Python of its call, " + there + ", not " + here)
    sys.path.insert(0, call["file"])
    dump = importlib.import_module("cloudpickle").dumps
    return pickle.loads(call["by_value"]), Calls(call).load()

def prepared():
    if call.get("by_value"):
        return by_value()
    found = load(call["file"], call["module"]) if pickled else importlib.import_module(call["module"])
    for part in call["function"].split("."):
        found = getattr(found, part)
    return found, Calls(call).load() if pickled else ()

def again_where_it_was_made():
    # The interpreter that made the call has what this one lacks, where it can be reached: on a shared file system.
    python = call.get("python", "")
    if not python or python == sys.executable:
        return ""
    if os.environ.get("ROOST_CALL_TRIED") is None and os.access(python, os.X_OK):
        os.environ["ROOST_CALL_TRIED"] = sys.executable
        try:
            os.execv(python, [python, *sys.argv])
        except OSError:
            pass
    else:
        return "; " + python + ", which made the call, is not to be had there either"
    return ""

try:
    try:
        function, calls = prepared()
    except ImportError as error:
        more = again_where_it_was_made()
        if importlib.util.find_spec("roost") is not None:
            raise type(error)(str(error) + " (in " + sys.executable + more + ")") from error
        for one in [one for one in sys.modules if one == call["module"] or one.partition(".")[0] == "roost"]:
            del sys.modules[one]
        sys.meta_path.append(AbsentRoost())
        try:
            function, calls = prepared()
        except ImportError as missing:
            raise type(missing)(str(missing) + " (in " + sys.executable + more + ")") from missing
    if pickled:
        values = [function(*args, **kwargs) for args, kwargs in calls]
        answer = pickle.dumps({{"values": dump(values, {PROTOCOL})}}, {PROTOCOL})
    else:
        answer = json.dumps({{"value": function(*call["args"], **call["kwargs"])}}).encode()
except BaseException as error:
    told = {{"error": f"{{type(error).__name__}}: {{error}}", "traceback": traceback.format_exc()}}
    if pickled:
        try:
            told["exception"] = dump(error, {PROTOCOL})
        except Exception:
            pass
    answer = pickle.dumps(told, {PROTOCOL}) if pickled else json.dumps(told).encode()
with open({PICKLED_RESULT!r} if pickled else {RESULT!r}, "wb") as file:
    file.write(answer)
sys.exit(1 if pickled and told else 0)
"""


class FunctionFailed(Exception):
    """The function raised, or its job did not come to an end by itself. traceback: of the function, where it ran."""

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class DependencyFailed(FunctionFailed):
    """A call was not run, as one whose value it takes failed (its exception is the cause) or was cancelled."""


@contextmanager
def packed(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], submit: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], Path]]:
    """Submit commands for a call, and the directory with its files. Raises ClientError."""
    module, source = home(function)
    try:
        call = json.dumps(
            {
                "module": module,
                "function": function.__qualname__,
                "args": list(args),
                "kwargs": dict(kwargs),
                "python": sys.executable,
            }
        )
    except (TypeError, ValueError) as error:
        raise ClientError(f"arguments of a function go as JSON: {error}; write large data to a file") from error
    with tempfile.TemporaryDirectory(prefix="roost-function-") as folder:
        base = Path(folder)
        shutil.copyfile(source, base / f"{module}.py")
        (base / CALL).write_text(call)
        write_runner(base)
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


def write_runner(folder: Path) -> None:
    (folder / RUNNER).write_text(_RUN)
    (folder / RUNNER).chmod(0o755)


def _arguments(
    calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]],
    future_of: Callable[[object], Future[Any] | None],
    kind: Any,
) -> tuple[bytes, dict[Future[Any], str]]:
    """Arguments by a kind of pickle.Pickler. Where a future stands in them, at any depth, its value will stand where
    they are read."""
    found: dict[Future[Any], str] = {}

    class Pickler(kind):  # type: ignore[misc]
        def reducer_override(self, thing: object) -> Any:
            future = future_of(thing)
            if future is not None:
                return value_of, (found.setdefault(future, f"value {len(found)}"),)
            return super().reducer_override(thing) if hasattr(kind, "reducer_override") else NotImplemented

    file = io.BytesIO()
    Pickler(file, PROTOCOL).dump([(tuple(args), dict(kwargs)) for args, kwargs in calls])
    return file.getvalue(), found


def value_bytes(value: object, told: Mapping[str, Any]) -> bytes:
    """A value of another call for one of which a job is told this. Raises what its class raises."""
    dump = importlib.import_module("cloudpickle").dumps if "by_value" in told else pickle.dumps
    packed: bytes = dump(value, PROTOCOL)
    return packed


def value_of(name: str) -> Any:
    """What pickled arguments name in place of another call's value. A job reads the value itself."""
    raise RuntimeError(f"{name} of another call is known where the job runs only")


def pickled(
    function: Callable[..., Any],
    calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]],
    future_of: Callable[[object], Future[Any] | None],
) -> tuple[Path, dict[str, Any], dict[Future[Any], str]]:
    """The file of the function's module, what a job is told of calls of it, and the futures among their arguments, by
    the names under which their values (`values`, pickled) are to be there. future_of: of what is a future. Raises
    ClientError, and what pickle raises of arguments that it does not take."""
    try:
        _, source = home(function)
    except ClientError as error:
        if not inspect.isfunction(function):
            raise
        return _pickled_by_value(function, calls, future_of, error)
    arguments, needs = _arguments(calls, future_of, pickle.Pickler)
    told = {
        "file": source.name,
        "module": "__mp_main__" if function.__module__ == "__main__" else function.__module__,
        "function": function.__qualname__,
        "python": sys.executable,
        "calls": arguments,
    }
    return source, told, needs


def _pickled_by_value(
    function: Callable[..., Any],
    calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]],
    future_of: Callable[[object], Future[Any] | None],
    why_not: ClientError,
) -> tuple[Path, dict[str, Any], dict[Future[Any], str]]:
    """As `pickled`, of a function that has no file: one of a notebook, or within another. cloudpickle travels with it.
    Raises why_not where cloudpickle is not installed."""
    try:
        cloudpickle = importlib.import_module("cloudpickle")
    except ImportError:
        raise ClientError(f"{why_not}; or install cloudpickle, which sends it as it is") from None
    arguments, needs = _arguments(calls, future_of, cloudpickle.Pickler)
    told = {
        "file": CLOUDPICKLE,
        "module": function.__module__,
        "function": function.__qualname__,
        "python": sys.executable,
        "version": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "by_value": cloudpickle.dumps(function, PROTOCOL),
        "calls": arguments,
    }
    return Path(CLOUDPICKLE), told, needs


def write_source(source: Path, folder: Path) -> None:
    """What goes along with calls of a function: its module's file, or cloudpickle. Raises OSError."""
    if source != Path(CLOUDPICKLE):
        shutil.copyfile(source, folder / source.name)
        return
    package = Path(str(importlib.import_module("cloudpickle").__file__)).parent
    with zipfile.ZipFile(folder / CLOUDPICKLE, "w", zipfile.ZIP_DEFLATED) as made:
        for file in sorted(package.glob("*.py")):
            made.write(file, f"cloudpickle/{file.name}")


def read_pickled(data: bytes) -> list[Any]:
    """What the calls of a job returned. Raises what a call raised, with its traceback there as the cause, or
    FunctionFailed where that can not be read here."""
    answer = pickle.loads(data)
    if "values" in answer:
        values: list[Any] = pickle.loads(answer["values"])
        return values
    failed = FunctionFailed(answer["error"], answer["traceback"])
    try:
        error = pickle.loads(answer["exception"])
    except Exception:  # noqa: BLE001  (its class may not be here, or want other arguments)
        raise failed from None
    if not isinstance(error, BaseException) or isinstance(error, SystemExit | KeyboardInterrupt):
        raise failed
    raise error from RemoteTraceback(answer["traceback"])


class RemoteTraceback(Exception):
    """The cause of an exception of a call: its traceback where it ran."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def home(function: Callable[..., Any]) -> tuple[str, Path]:
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

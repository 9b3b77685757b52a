"""Submit: a submit description as a mapping, read by roost.submit."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, ClassVar, Self

from roost import submission
from roost.errors import ClientError
from roost.submit import DescribedCluster, Description, here
from roost.submit.description import SUBMIT, told_of
from roost.submit.queue_statement import QueueItems, parse
from roost_htcondor.class_ad import ClassAd
from roost_htcondor.constants import SubmitMethod
from roost_htcondor.dagman import commands_of_dag, table_of_options
from roost_htcondor.gateway import HTCondorException, gateway, refuse
from shared.classad import ClassAd as PoolAd
from shared.config.errors import ConfigError, Source
from shared.config.macros import MacroTable
from shared.config.reader import Reader
from shared.errors import RoostError

_SOURCE = "Submit"
NO_OPTIONS: Mapping[str, int | bool | str] = MappingProxyType({})


class SubmitWarning(UserWarning):
    """Of what a description asks for in vain, such as a misspelt command."""


class Submit(MutableMapping[str, str]):
    """The commands of a submit description, and its queue statement.

    input: a mapping of commands, or the text of a submit file up to its first queue statement. queue: what stands
    behind `queue`. Further keywords are commands. Values are texts, as they stand in a submit file. Raises
    HTCondorException for a text that is none.
    """

    _ad: ClassVar[type[ClassAd]] = ClassAd

    def __init__(self, input: Mapping[str, Any] | str | None = None, queue: str | None = None, **kwargs: Any) -> None:
        self._commands: dict[str, tuple[str, str]] = {}  # by name without case
        self._queue = ""
        self._inline: list[str] | None = None  # lines of items behind the queue statement
        self._method = int(SubmitMethod.PythonBindings)
        if isinstance(input, str):
            self._read(input)
        elif isinstance(input, Mapping):
            self.update(input)
        elif input is not None:
            raise TypeError("a Submit is made of a mapping of commands, the text of a submit file, or None")
        self.update(kwargs)
        if queue is not None:
            self.setQArgs(queue)

    def _read(self, text: str) -> None:
        reader = Reader(MacroTable(defaults={}, environment=os.environ), SUBMIT)
        try:
            for statement in reader.statements(text, _SOURCE):
                self._queue = statement.rest.strip()
                if self._queue.endswith("("):
                    self._inline = []
                    while (line := reader.take_line()) is not None and not line.strip().startswith(")"):
                        self._inline.append(line.rstrip("\n"))
                break
        except ConfigError as error:
            raise HTCondorException(str(error)) from error
        for macro in reader.table:
            if macro.source.name == _SOURCE:
                self[macro.name] = macro.text

    # The mapping

    def __getitem__(self, key: str) -> str:
        return self._commands[_key(key)][1]

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(value, str | bool | int | float | PurePath | ClassAd):
            raise TypeError(f"{key}: the value of a command is a text, a number, a Path or a ClassAd, not {value!r}")
        name, text = _named(key), repr(value) if isinstance(value, ClassAd) else str(value)
        if "\n" in text or "\r" in text or "\0" in text:
            raise ValueError(f"{key}: the value of a command is one line; take the line breaks out")
        if not re.fullmatch(r"[\w.$+]+", name):
            raise ValueError(f"{key!r} is no name of a command")
        if name.lower() in ("queue", "include", "use", "if", "else", "elif", "endif"):
            raise ValueError(f"{key} is no command with a value: give the text of a submit file, or setQArgs")
        self._commands[_key(key)] = (name, text)

    def __delitem__(self, key: str) -> None:
        del self._commands[_key(key)]

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, _ in self._commands.values()])

    def __len__(self) -> int:
        return len(self._commands)

    def __str__(self) -> str:
        return self._text()

    def __repr__(self) -> str:
        return f"Submit({self._text()})"

    def _text(self, queue: str | None = None) -> str:
        lines = "".join(f"{name} = {text}\n" for name, text in self._commands.values())
        return lines + (queue if queue is not None else self._statement())

    def _statement(self) -> str:
        if self._inline is None:
            return f"queue {self._queue}".rstrip() + "\n"
        return "\n".join((f"queue {self._queue}", *self._inline, ")", ""))

    # The language

    def expand(self, attr: str) -> str:
        """The value of a command with its macros replaced, as the first job has it. Raises KeyError."""
        table = MacroTable(defaults={}, environment=os.environ)
        first = dict.fromkeys(("process", "procid", "step", "row", "itemindex"), "0")
        table.live.update({"cluster": "1", "clusterid": "1", **first})
        reader = Reader(table, SUBMIT)
        try:
            reader.read_text(self._text(""), _SOURCE)
            return str(table.expand(self[attr], source=Source(_SOURCE)))
        except ConfigError as error:
            raise HTCondorException(str(error)) from error

    def getQArgs(self) -> str:
        """What stands behind `queue`."""
        return self._queue

    def setQArgs(self, args: str) -> None:
        """Put another text behind `queue`."""
        if not isinstance(args, str) or "\n" in args.strip():
            raise ValueError("the arguments of a queue statement are one line: give items as itemdata")
        self._queue, self._inline = args.strip(), None

    def itemdata(self, qargs: str | None = None) -> Iterator[dict[str, str]]:
        """The items of the queue statement, or of another one: the values of its variables."""
        items = self._items(qargs)
        for _, values in items.rows or ():
            found = zip(items.variables, values, strict=False)
            yield {name: value for name, value in found if value is not None}

    def _items(self, qargs: str | None) -> QueueItems:
        lines = iter(self._inline or () if qargs is None else ())
        ending = iter((")",))
        try:
            return parse(
                self._queue if qargs is None else qargs,
                Source(_SOURCE),
                directory=Path.cwd(),
                take_line=lambda: next(lines, None) or next(ending, None),
                stdin=str,
            )
        except ConfigError as error:
            raise HTCondorException(str(error)) from error

    def getSubmitMethod(self) -> int:
        """What jobs have as JobSubmitMethod."""
        return self._method

    def setSubmitMethod(self, method_value: int = -1, allow_reserved_values: bool = False) -> None:
        """Set it: 100 or more, unless reserved values are allowed."""
        if 0 <= method_value < SubmitMethod.UserSet and not allow_reserved_values:
            raise ValueError(f"{method_value} is reserved: take {int(SubmitMethod.UserSet)} or more")
        self._method = int(method_value)

    def jobs(
        self,
        count: int = 0,
        itemdata: Iterable[Any] | None = None,
        clusterid: int = 1,
        procid: int = 0,
        qdate: int = 0,
        owner: str = "",
    ) -> Iterator[ClassAd]:
        """The whole ads of the jobs, without queueing any."""
        yield from self._made(count, itemdata, clusterid, procid, qdate, owner, whole=True)

    def procs(
        self,
        count: int = 0,
        itemdata: Iterable[Any] | None = None,
        clusterid: int = 1,
        procid: int = 0,
        qdate: int = 0,
        owner: str = "",
    ) -> Iterator[ClassAd]:
        """The same, but after the first job only what differs in each."""
        yield from self._made(count, itemdata, clusterid, procid, qdate, owner, whole=False)

    def _made(
        self, count: int, itemdata: Any, clusterid: int, procid: int, qdate: int, owner: str, *, whole: bool
    ) -> Iterator[ClassAd]:
        if procid:
            refuse(f"jobs that begin with ProcId {procid}", "the jobs of a cluster begin with 0")
        description = self.description(count, itemdata)
        description.cluster = clusterid
        cluster = self.cluster(description)
        fixed = {"ClusterId": clusterid, "QDate": qdate or int(time.time()), **({"Owner": owner} if owner else {})}
        for number, proc in enumerate(cluster.procs):
            own = {**proc, "ClusterId": clusterid}
            first = whole or number == 0
            yield self._ad._of(PoolAd({**cluster.attributes, **fixed, **own} if first else own))

    # For Schedd

    def description(
        self, count: int = 0, itemdata: Iterable[Any] | None = None, queue: str | None = None
    ) -> Description:
        """As the submit language reads it. itemdata: values of variables for each item, or its text."""
        if queue is not None and (count or itemdata is not None):
            raise ValueError("queue says how many jobs there are: leave count and itemdata out")
        if itemdata is not None:
            statement = self._of_items(count, list(itemdata))
        elif queue is not None:
            statement = f"queue {queue}\n"
        elif count and not self._items(None).rows:
            statement = f"queue {count}\n"
        elif count:
            raise ValueError("the queue statement has items: give them as itemdata, with count")
        else:
            statement = self._statement()
        own = f"MY.JobSubmitMethod = {self._method}\n" if self._method >= 0 else ""
        text = self._text("") + own + statement
        return Description(text, here(_SOURCE), now=time.time())

    def _of_items(self, count: int, items: list[Any]) -> str:
        number = count or 1
        if all(isinstance(item, Mapping) for item in items):
            try:
                return submission.text_of({}, number, items)
            except ClientError as error:
                raise ValueError(str(error)) from error
        names = self._items(None).variables or ("Item",)
        if not all(isinstance(item, str) and "\n" not in item for item in items):
            raise TypeError("itemdata is an iterable of dicts, or of strings of one line each")
        return "\n".join((f"queue {number} {','.join(names)} from (", *items, ")", ""))

    @staticmethod
    def cluster(description: Description) -> DescribedCluster:
        """Its jobs. Warns of what it asks for in vain. Raises HTCondorException."""
        try:
            cluster = submission.described(description)
        except RoostError as error:
            raise HTCondorException(str(error)) from error
        several = "Use of multiple queue statements"  # which items are made of
        told = [text for text in map(str, description.warnings) if several not in text]
        for text in [*told, *told_of([cluster])]:
            warnings.warn(text, SubmitWarning, stacklevel=4)
        return cluster

    # What needs more than a description

    def issue_credentials(self) -> str | None:
        """See that the tokens of `use_oauth_services` are stored. Raises HTCondorException naming one that is not."""
        wanted = re.split(r"[\s,]+", self.get("use_oauth_services", self.get("UseOAuthServices", "")).strip())
        services = {name for name in wanted if name}
        if services:
            with gateway() as client:
                stored = {one["service"] for one in client.credentials()}
            for name in sorted(services - stored):
                raise HTCondorException(f"there is no token of {name}: store one with Credd.add_user_service_cred")
        return None

    @classmethod
    def from_dag(cls, filename: str, options: Mapping[str, int | bool | str] = NO_OPTIONS) -> Self:
        """A description of the line in the queue of a DAG, to be submitted like any other. options: those of
        `roost submit-dag`, by the names that `from_dag_options` prints, in any case. Raises HTCondorException where the
        DAG is wrong, or is in the queue; KeyError for what is no option, TypeError and ValueError for what is no value
        of one."""
        return cls(commands_of_dag(filename, options))

    @staticmethod
    def from_dag_options() -> None:
        """Print the options that `from_dag` takes."""
        print(table_of_options())  # noqa: T201  (that is what it is for)


def _named(key: str) -> str:
    if not isinstance(key, str):
        raise TypeError("the names of commands are strings")
    return f"MY.{key[1:].strip()}" if key.strip().startswith("+") else key.strip()


def _key(key: str) -> str:
    return _named(key).lower()

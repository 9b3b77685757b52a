"""JobEventLog and JobEvent: logs of jobs, by roost.job_event_log."""

from __future__ import annotations

from typing import Any

from roost import job_event_log
from roost.errors import ClientError
from roost_htcondor.class_ad import ClassAd
from roost_htcondor.gateway import HTCondorException


class JobEvent(job_event_log.JobEvent):
    """One event: a mapping of its attributes, with the values that ads of htcondor2 have."""

    def __init__(self, event: job_event_log.JobEvent) -> None:
        super().__init__(event._event)
        self._values = ClassAd._of(self._ad)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __str__(self) -> str:
        return self._values.printOld()


class JobEventLog:
    """A log of jobs, as an iterator over its events. Pickled, it goes on behind the event that it gave last. Raises
    HTCondorException where the file can not be read, and once for what is no event."""

    def __init__(self, filename: str) -> None:
        self._filename = filename
        self._given = 0
        try:
            self._log = job_event_log.JobEventLog(filename)
        except OSError as error:
            raise HTCondorException(f"{filename} can not be read: {error.strerror}") from error

    def events(self, stop_after: float | None = None) -> JobEventLog:
        """This log as an iterator that waits for further events so many seconds: 0 not at all, None for ever."""
        self._log.events(stop_after)
        return self

    def close(self) -> None:
        self._log.close()

    def __iter__(self) -> JobEventLog:
        return self

    def __next__(self) -> JobEvent:
        try:
            event = next(self._log)
        except ClientError as error:
            self._given += 1
            raise HTCondorException(str(error)) from error
        self._given += 1
        return JobEvent(event)

    def __enter__(self) -> JobEventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> tuple[str, int]:
        return self._filename, self._given

    def __setstate__(self, state: tuple[str, int]) -> None:
        filename, given = state
        self.__init__(filename)  # type: ignore[misc]
        self.events(0)
        while self._given < given:
            try:
                next(self)
            except HTCondorException:
                continue
            except StopIteration:
                raise HTCondorException(f"{filename} has become shorter: events that were read are gone") from None
        self.events(None)

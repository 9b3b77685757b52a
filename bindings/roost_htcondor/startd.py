"""Startd: orders to an execution point."""

from __future__ import annotations

from typing import Any

from roost_htcondor.class_ad import ClassAd
from roost_htcondor.constants import CompletionType, DrainType, VacateType
from roost_htcondor.gateway import HTCondorException, Remote, refused


class Startd(Remote):
    """An execution point. location: its ad, which names its machine; None: the one of this machine. Raises
    HTCondorException."""

    def __init__(self, location: ClassAd | None = None) -> None:
        super().__init__(location)
        self._machine = "" if location is None else str(location.get("Machine", self._name))

    def drainJobs(
        self,
        drain_type: DrainType = DrainType.Graceful,
        on_completion: CompletionType = CompletionType.Nothing,
        check_expr: str | None = None,
        start_expr: str | None = None,
        reason: str | None = None,
    ) -> str:
        """Let the machine become empty; the id of the draining. check_expr: must be true of every slot; start_expr:
        START meanwhile."""
        after = CompletionType(on_completion)
        if after is CompletionType.Reconfig:
            raise HTCondorException(
                "CompletionType.Reconfig is not in Roost: take Resume, and reconfigure with send_command"
            )
        answer = self._order(
            "drain",
            how=DrainType(drain_type).name.lower(),
            reason=reason or "",
            on_completion=after.name.lower(),
            check=check_expr or "",
            start=start_expr or "",
        )
        return str(answer["request_id"])

    def cancelDrainJobs(self, request_id: str | None = None) -> None:
        """End a draining. request_id: only that of this id."""
        self._order("cancel-drain", request_id=request_id or "")

    def vacate(self, vacate_fast: VacateType = VacateType.Graceful) -> None:
        """End the claims of all slots."""
        self._order("vacate", how=VacateType(vacate_fast).name.lower())

    def vacateSlot(self, slot_name: str | None = None, vacate_fast: VacateType = VacateType.Graceful) -> None:
        """End the claim of a slot: of the one that is named, or of the location's."""
        self._order("vacate", name=slot_name or self._name, how=VacateType(vacate_fast).name.lower())

    history = refused("Startd.history", "the access point has it: Schedd.history")
    rehome = refused("Startd.rehome", "an execution point belongs to the pool whose broker it is enrolled with")

    def _order(self, order: str, *, name: str = "", **body: Any) -> dict[str, Any]:
        if not (name or self._machine):
            import socket

            from roost.personal_config import tool_config

            name = tool_config().get("FULL_HOSTNAME") or socket.gethostname()
        names = [name or self._machine]
        with self._gateway() as client:
            whom = {"names": names, "all": False, "constraint": ""}
            answers: list[dict[str, Any]] = client.order(f"/v1/machines/{order}", {**whom, **body})
        for answer in answers:
            if not answer["done"]:
                raise HTCondorException(f"{names[0]}: {answer['said']}")
        if not answers:
            raise HTCondorException(f"no execution point {names[0]}")
        return answers[0]

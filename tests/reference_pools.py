"""Made-up pools and what HTCondor's negotiator decided on them: see tests/data/reference_pools/README.md."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from engine.fairshare.group_tree import SubmitterDemand
from engine.fairshare.priorities import Record
from engine.match.model import Request
from shared.classad import ClassAd
from shared.classad.old import parse_old_ad
from shared.config import load_config
from shared.config.knobs import NegotiatorSettings

DATA = Path(__file__).parent / "data" / "reference_pools"


@dataclass(frozen=True)
class Recorded:
    """A pool of the data, as parsed JSON."""

    row: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.row["name"])

    def settings(self, tmp_path: Path) -> NegotiatorSettings:
        path = tmp_path / "condor_config"
        path.write_text("\n".join(self.row["config"]) + "\n")
        return NegotiatorSettings.from_config(load_config([path], subsystem="NEGOTIATOR", env={}))

    def slots(self) -> list[ClassAd]:
        common = self.row["slots"]["common"]
        return [ad({**common, **slot}) for slot in self.row["slots"]["each"]]

    def requests(self) -> dict[str, list[Request]]:
        found: dict[str, list[Request]] = {}
        for job in self.row["jobs"]:
            request = Request("schedd", job["autocluster"], job["count"], ad(job["ad"]))
            found.setdefault(job["submitter"], []).append(request)
        return found

    def records(self) -> dict[str, Record]:
        now = float(self.row["now"])
        return {name: Record(updated=now, **values) for name, values in self.row["submitters"].items()}

    def waiting(self) -> list[SubmitterDemand]:
        return [
            SubmitterDemand(name, idle, running, weighted_idle, weighted_running)
            for name, (weighted_idle, weighted_running, idle, running) in self.row["demand"].items()
        ]


def ad(attributes: dict[str, str]) -> ClassAd:
    return parse_old_ad("\n".join(f"{name} = {text}" for name, text in attributes.items()))


@cache
def recorded() -> tuple[Recorded, ...]:
    def rows() -> Iterator[Recorded]:
        for path in sorted(DATA.glob("*.jsonl.gz")):
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                yield from (Recorded(json.loads(line)) for line in lines)

    return tuple(rows())

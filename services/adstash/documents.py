"""A job's ad as a JSON document, with an id that is the same whenever it is made again (spec rows MON-18, MON-19)."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, Final

from services.adstash.fields import BOOLEAN, DATE, DOUBLE, KEYWORD, KNOWN, LEFT_OUT, LONG
from shared.classad import ERROR, UNDEFINED, ClassAd, PackedError, unparse
from shared.classad.expr import AttrRef, Expr, fold, walk

#: Sources of records.
SCHEDD_HISTORY, STARTD_HISTORY, EPOCH_HISTORY, AD_FILE = "schedd_history", "startd_history", "job_epoch", "ad_file"
#: Longer texts are cut: a document must not be of megabytes.
_MOST_TEXT: Final = 100_000
_LONGS: Final = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Document:
    """id: of this record, at most 512 bytes as Elasticsearch wants."""

    id: str
    fields: dict[str, Any]

    def bare(self) -> Document:
        """The same without attributes that only its user knows."""
        return Document(self.id, {name: value for name, value in self.fields.items() if fold(name) in KNOWN})


def document(ad: ClassAd, source: str, daemon: str) -> Document:
    """The document of a record. source: one of those above; daemon: whose history it is of."""
    fields: dict[str, Any] = {}
    for name, expr in ad.public().exprs():
        key = fold(name)
        if key in LEFT_OUT:
            continue
        written, kind = KNOWN.get(key) or (_field(name), KEYWORD)
        _put(fields, written, kind, _value(ad, name, expr))
    time = record_time(ad)
    if time:
        fields["RecordTime"] = time
    fields |= {"Source": source, "SourceDaemon": daemon}
    if source == SCHEDD_HISTORY:
        fields["ScheddName"] = daemon
    return Document(_id(ad, source, daemon, time, fields), fields)


def record_time(ad: ClassAd) -> int:
    """When the record was made, seconds since 1970: the job ended, or left the queue; 0 where it does not say."""
    for name in ("CompletionDate", "EnteredCurrentStatus", "QDate"):
        value = ad.eval(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1 << 40:
            return int(value)
    return 0


def job_of(ad: ClassAd) -> str:
    """What tells the record of a job from others of that schedd."""
    return f"{ad.eval_string('GlobalJobId')}#{ad.eval('ClusterId')}.{ad.eval('ProcId')}#{record_time(ad)}"


def _id(ad: ClassAd, source: str, daemon: str, time: int, fields: dict[str, Any]) -> str:
    job = ad.eval_string("GlobalJobId")
    if not job or source == AD_FILE:
        text = json.dumps(fields, sort_keys=True, default=str)
        return f"{job[:200]}#{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"
    parts = [job[:300], str(time)]
    if source != SCHEDD_HISTORY:
        starts, runs = ad.eval("JobCurrentStartDate"), ad.eval("NumShadowStarts")
        parts += [source, str(starts if isinstance(starts, int) else 0), str(runs if isinstance(runs, int) else 0)]
        parts += [daemon[:100]]
    return "#".join(parts)


def _field(name: str) -> str:
    """A name that can be a field's: dots make objects, and what begins with _ is the server's own."""
    name = name.encode(errors="replace").decode().replace(".", "_")
    return f"attr{name}" if name.startswith("_") else name


def _value(ad: ClassAd, name: str, expr: Expr) -> Any:
    """The value of an attribute; of an expression that needs another ad its text."""
    try:
        value = ad.eval(name)
    except (PackedError, ValueError):
        value = ERROR
    if value is UNDEFINED or value is ERROR:
        return unparse(expr) if any(isinstance(node, AttrRef) for node in walk(expr)) else None
    if isinstance(value, str | bool | int | float):
        return value
    return unparse(expr)


def _put(fields: dict[str, Any], name: str, kind: str, value: Any) -> None:
    """Have a value that fits its field; under another name, as a keyword, where it does not."""
    if value is None:
        return
    if isinstance(value, str):
        value = value.encode(errors="replace").decode()[:_MOST_TEXT]
    fitting = _as(kind, value)
    if fitting is not None:
        fields[name] = fitting
    elif not (kind == DATE and value == 0):  # HTCondor's way to say that it has not happened
        fields[f"{name}_STRING"] = _text(value)


def _as(kind: str, value: Any) -> Any:
    if kind == BOOLEAN:
        return bool(value) if isinstance(value, bool | int) else None
    if kind not in (LONG, DOUBLE, DATE):
        return value if isinstance(value, str) else _text(value)
    if isinstance(value, bool) and kind == DATE:
        return None
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if kind == DOUBLE:
        return float(value)
    if kind == DATE:
        return int(value) if 0 < value < 1 << 40 else None
    whole = int(value)
    return whole if _LONGS[0] <= whole <= _LONGS[1] else None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)

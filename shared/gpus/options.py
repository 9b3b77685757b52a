"""The options of GPU discovery, as HTCondor's tool takes them: one dash or two, and cut short where that is clear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from shared.errors import PermanentError

#: How short an option may be cut.
_SHORTEST = {"properties": 1, "extra": 3, "dynamic": 3, "mixed": 3, "nested": 2, "not-nested": 6, "device": 3, "tag": 3}
_SHORTEST |= {"prefix": 3, "cuda": 4, "opencl": 6, "uuid": 2, "short-uuid": 10, "by-index": 4, "simulate": 3}
_SHORTEST |= {"config": 6, "repeat": 6, "divide": 6, "packed": 3, "cron": 4, "help": 1, "verbose": 4, "diagnostic": 4}
#: Beyond so many copies of a GPU nobody can mean it.
MOST_COPIES = 1000

USAGE = """usage: roost gpu-discovery [options]
    -properties       what matchmaking looks at: DeviceName, Capability, GlobalMemoryMb, ...
    -extra            more: ClockMhz, ComputeUnits, CoresPerCU
    -dynamic          what changes: temperature, fan, power, memory errors
    -mixed            no common properties: each GPU tells all of its own
    -nested           an ad for each GPU (default)
    -not-nested       plain attributes, each with its GPU's name before it
    -device <N>       only the GPU of this number; may be repeated
    -tag <name>       Detected<name> instead of DetectedGPUs
    -prefix <text>    instead of CUDA and OCL
    -cuda             no OpenCL devices
    -opencl           OpenCL devices rather than CUDA's
    -uuid             ids are whole UUIDs
    -short-uuid       ids are the first eight digits of UUIDs (default)
    -by-index         ids are numbers: CUDA0
    -repeat [<N>]     list every GPU N times (2), for jobs that share one
    -divide [<N>]     the same, and divide GlobalMemoryMb by N
    -packed           repeat each GPU rather than the list
    -config           in the language of configuration files
    -cron             for a cron job of the startd
    -simulate[:D[,N]] made-up GPUs: N of kind D (0 to 8)
    -verbose          tell on stderr what can not be asked
    -help             this
"""


class BadOption(PermanentError):
    """An option that discovery does not have, or a value that it does not take."""


@dataclass(slots=True)
class Options:
    properties: bool = False
    extra: bool = False
    dynamic: bool = False
    mixed: bool = False
    nested: bool = True
    devices: list[str] = field(default_factory=list)
    tag: str = "GPUs"
    prefix: str = ""
    kind: Literal["any", "cuda", "opencl"] = "any"
    ids: Literal["short", "uuid", "index"] = "short"
    copies: int = 1
    divide: bool = False
    packed: bool = False
    form: Literal["plain", "config", "cron"] = "plain"
    simulate: str | None = None
    verbose: bool = False
    help: bool = False


def parse(argv: Sequence[str]) -> Options:
    """Raises BadOption."""
    options = Options()
    words = list(argv)
    copies = 0  # as given
    while words:
        word = words.pop(0)
        name, colon, value = _name(word), *word.partition(":")[1:]
        match name:
            case "properties":
                options.properties = True
            case "extra" | "dynamic" | "mixed" | "packed" | "verbose" | "help":
                setattr(options, name, True)
            case "diagnostic":
                options.verbose = True
            case "nested" | "not-nested":
                options.nested = name == "nested"
            case "device":
                if not words or words[0].startswith("-"):
                    raise BadOption("-device requires an argument: the number of a GPU")
                options.devices += [one for one in words.pop(0).split(",") if one]
            case "tag" | "prefix":
                if words and not words[0].startswith("-"):
                    setattr(options, name, words.pop(0))
            case "cuda" | "opencl":
                options.kind = "cuda" if name == "cuda" else "opencl"
            case "uuid" | "short-uuid" | "by-index":
                options.ids = "uuid" if name == "uuid" else "short" if name == "short-uuid" else "index"
            case "repeat" | "divide":
                options.divide = name == "divide"
                if words and not words[0].startswith("-"):
                    text = words.pop(0)
                    copies = int(text) if text.isdigit() and len(text) < 10 else 0
                    options.copies = max(1, min(copies, MOST_COPIES))
                elif not copies:
                    options.copies = 2
            case "config" | "cron":
                options.form = "config" if name == "config" else "cron"
            case "simulate":
                options.simulate = value if colon else "0"
    options.properties |= options.extra or options.dynamic
    return options


def _name(word: str) -> str:
    given = word.partition(":")[0] if word.lstrip("-").lower().startswith("sim") else word
    if given.startswith("-"):
        bare = given.removeprefix("-").removeprefix("-").lower()
        for name, shortest in _SHORTEST.items():
            if len(bare) >= shortest and name.startswith(bare):
                return name
    raise BadOption(f"option {word} is not valid")

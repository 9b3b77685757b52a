"""What is known of GPUs, and where it comes from: a backend that tests replace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Dynamic:
    """What changes while a GPU works; None: it does not say."""

    temperature_c: int | None = None
    fan_percent: int | None = None
    power_mw: int | None = None
    single_bit_errors: int | None = None
    double_bit_errors: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that CUDA knows, or an instance that one was cut into (MIG)."""

    uuid: str  # without "GPU-"; of an instance with its "MIG-"
    index: int = -1  # CUDA's number; an instance has none
    name: str = ""
    capability: tuple[int, int] | None = None
    memory_bytes: int = 0
    pci: str = ""  # 0000:3B:00.0
    units: int | None = None  # multiprocessors
    clock_khz: int = 0
    ecc: bool = False
    driver: int = 0  # 12020: CUDA 12.2; 0: not said
    instance: bool = False


@dataclass(frozen=True, slots=True)
class OpenClDevice:
    index: int
    name: str
    version: str  # 3.0
    memory_bytes: int
    units: int
    clock_mhz: int
    ecc: bool


@dataclass(frozen=True, slots=True)
class Found:
    gpus: Sequence[Gpu] = ()  # in CUDA's order, instances after them
    opencl: Sequence[OpenClDevice] = ()
    dynamic: Mapping[str, Dynamic] = field(default_factory=dict)  # by uuid
    troubles: Sequence[str] = ()  # what could not be asked, and why


@dataclass(frozen=True, slots=True)
class Load:
    """How busy a GPU is now."""

    uuid: str  # as in Gpu
    busy: float  # 0.0 to 1.0
    memory_mib: int  # in use


class Backend(Protocol):
    def find(self, *, opencl: bool, dynamic: bool) -> Found:
        """Everything there is. A library that is missing is no error: then there is nothing of its kind."""

    def loads(self) -> Sequence[Load]:
        """Of all GPUs that can be asked."""

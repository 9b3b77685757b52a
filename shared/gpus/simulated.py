"""Made-up GPUs for `-simulate`, the same that HTCondor's tool makes up: for trying out configurations without any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shared.gpus.model import Dynamic, Found, Gpu, Load
from shared.gpus.options import BadOption

_MIB = 1 << 20
_TAIL = "-4445-5667-899a-abbccddeeff0"
_MOST = 64


def _kind(name: str, capability: tuple[int, int], mib: int, units: int, mhz: int, *, ecc: bool) -> Gpu:
    return Gpu(
        "", name=name, capability=capability, memory_bytes=mib * _MIB, units=units, clock_khz=mhz * 1000, ecc=ecc
    )


_KINDS = (
    _kind("GeForce GT 330", (1, 2), 1024, 12, 1340, ecc=False),
    _kind("GeForce GTX 480", (2, 0), 1536, 15, 1400, ecc=False),
    _kind("Tesla V100-PCIE-16GB", (7, 0), 24220, 80, 1380, ecc=True),
    _kind("TITAN RTX", (7, 5), 24220, 72, 1770, ecc=False),
    _kind("A100-SXM4-40GB", (8, 0), 47661, 42, 1410, ecc=True),
)
#: Kinds that are cut into instances, by number: MiB of each.
_INSTANCES = {5: (20086, 20082), 6: (4861,) * 7, 7: (20086, 20082)}
_ONE_OF_EACH = 8


class Simulated:
    """text: "D,N,D2,N2,..."; a backend. Raises BadOption."""

    def __init__(self, text: str) -> None:
        try:
            numbers = [int(one) for one in text.split(",")] if text else []
        except ValueError:
            numbers = [-1]
        self._whole: list[Gpu] = []
        self._cut: list[Gpu] = []
        self._count = 0
        for at in range(0, len(numbers), 2):
            kind, count = numbers[at], numbers[at + 1] if at + 1 < len(numbers) else 1
            if not 0 <= kind <= _ONE_OF_EACH:
                raise BadOption(f"simulation must be in range of 0-{_ONE_OF_EACH}")
            for _ in range(min(max(count, 0), _MOST)):
                for one in range(_ONE_OF_EACH) if kind == _ONE_OF_EACH else (kind,):
                    self._add(one)

    def _add(self, kind: int) -> None:
        number = self._count
        self._count += 1
        start = f"{(0xA0 + 0x11 * number) % 256:02x}2233"
        if kind < len(_KINDS):
            pci = f"0000:{0x40 + number:02X}:00.0"
            self._whole.append(replace(_KINDS[kind], uuid=f"{start}34{_TAIL}", index=number, pci=pci))
            return
        for at, mib in enumerate(_INSTANCES[kind]):
            uuid = f"MIG-GPU-{start}34{_TAIL}/{at}/0" if kind == 5 else f"MIG-{start}{at:02x}{_TAIL}"
            gpu = Gpu(uuid, memory_bytes=mib * _MIB, clock_khz=1_410_000, ecc=True, instance=True)
            self._cut.append(gpu)

    def find(self, *, opencl: bool, dynamic: bool) -> Found:
        now = {one.uuid: Dynamic(345 + one.index, 265 + one.index, 285 + one.index, 0, 0) for one in self._whole}
        return Found((*self._whole, *sorted(self._cut, key=lambda one: one.uuid)), (), now if dynamic else {})

    def loads(self) -> Sequence[Load]:
        return [Load(one.uuid, 0.5, 1000 + one.index) for one in self._whole]

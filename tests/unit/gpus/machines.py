"""GPUs that are not there: the machines of the recorded discoveries."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.gpus.model import Dynamic, Found, Gpu, Load, OpenClDevice


def uuid_of(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def known(text: str) -> int | None:
    return None if text.startswith("-") else int(text)


@dataclass
class Machine:
    """A backend. `text` has a line for each device, as tests/data/reference_gpus/README.md tells; `libraries` says
    which of CUDA, NVML and OpenCL there are."""

    text: str
    libraries: str = "CUDA NVML OpenCL"
    busy: dict[str, tuple[float, int]] = field(default_factory=dict)

    def find(self, *, opencl: bool, dynamic: bool) -> Found:
        rows = [line.split("|") for line in self.text.splitlines()]
        driver = next((int(row[1]) for row in rows if row[0] == "driver"), 12020)
        gpus, now = [], {}
        for row in (row for row in rows if row[0] == "gpu"):
            gpus.append(
                Gpu(
                    uuid=uuid_of(row[2]),
                    index=len(gpus),
                    name=row[1],
                    capability=(int(row[3]), int(row[4])),
                    memory_bytes=int(row[5]),
                    pci=row[6],
                    units=int(row[7]),
                    clock_khz=int(row[8]),
                    ecc=row[9] == "1",
                    driver=driver,
                )
            )
            errors = known(row[13])
            now[gpus[-1].uuid] = Dynamic(
                known(row[12]), known(row[10]), known(row[11]), errors, None if errors is None else errors + 100
            )
        kept = list(gpus)
        for row in (row for row in rows if row[0] == "mig" and "NVML" in self.libraries):
            whole = gpus[int(row[1])]
            kept = [gpu for gpu in kept if gpu is not whole]
            kept.append(
                Gpu(
                    uuid=f"MIG-{uuid_of(row[3])}",
                    name=row[2],
                    capability=whole.capability,
                    memory_bytes=int(row[4]),
                    pci=whole.pci,
                    units=int(row[5]),
                    clock_khz=whole.clock_khz,
                    ecc=whole.ecc,
                    instance=True,
                )
            )
            now[kept[-1].uuid] = Dynamic(0, 0, 0, 0, 100)
        devices = [
            OpenClDevice(number, row[1], row[2].split()[1], int(row[3]), int(row[4]), int(row[5]), row[6] == "1")
            for number, row in enumerate(row for row in rows if row[0] == "ocl")
        ]
        return Found(
            kept if "CUDA" in self.libraries else (),
            devices if opencl and "OpenCL" in self.libraries else (),
            now if dynamic and "NVML" in self.libraries else {},
        )

    def loads(self) -> list[Load]:
        return [Load(uuid, busy, memory) for uuid, (busy, memory) in self.busy.items()]

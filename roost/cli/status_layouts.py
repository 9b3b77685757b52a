"""The tables of `roost status`: columns, widths and what is chosen, as HTCondor's condor_status has them.

Longer than most modules: it is the list of thirty tables, and next to no logic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from roost.cli.print_mask import As, Column, Mask, column, string
from roost.cli.printas import TABLE, words_of
from shared.classad import ClassAd

_WHOLE: Final = "PartitionableSlot =?= true || DynamicSlot =!= true"
_FREE: Final = 'State == "Unclaimed" && Cpus > 0 && Memory > 0'
_GPUS: Final = "(PartitionableSlot && AssignedGPUs isnt undefined) ?: Gpus"
_WITH_GPUS: Final = "TotalGPUs > 0 || size(DetectedGPUs) > 0"

#: Mode -> what must be true of an ad, besides what the user asks for; the second where machines are rolled up.
CONDITIONS: Final[dict[str, tuple[str, str]]] = {
    "avail": (_FREE, _FREE),
    "claimed": (
        'State == "Claimed"',
        '(State == "Claimed" && DynamicSlot =!= true) || (NumDynamicSlots isnt undefined && NumDynamicSlots > 0)',
    ),
    "cod": ("NumCODClaims", _WHOLE),
    "gpus": (
        "",
        "AvailableGPUs isnt undefined"
        " && (size(AvailableGPUs) > 0 || (PartitionableSlot && AssignedGPUs isnt undefined))",
    ),
    "slots": ("", _WHOLE),
}


@dataclass(frozen=True, slots=True)
class Screen:
    """What the lines must fit in. width: of the screen or of -wide:N; 0: none. wide: -wide."""

    width: int = 0
    wide: bool = False

    @property
    def room(self) -> int:
        return (self.width or (1024 if self.wide else 80)) - 1


@dataclass(slots=True)
class Layout:
    """A table. where: a condition of its own. places: what rolling machines up must find: name -> column's number.
    fixed: width of the columns other than Name and Machine, where these give way to a narrow screen; 0: they do not."""

    columns: list[Column]
    where: str = ""
    places: dict[str, int] | None = None
    fixed: int = 0


def layout(style: str, mode: str, screen: Screen, *, compact: bool, kind: str) -> Layout:
    """The table of a style (normal, run, server, state, ...). kind: "" or java, vm, absent, offline."""
    if style == "normal" and kind in ("absent", "offline"):
        return Layout(_absent(screen) if kind == "absent" else _offline(screen))
    if compact and style in _COMPACT and not (style == "normal" and kind):
        return _COMPACT[style]()
    if style == "gpus":
        return _startd_gpus() if mode == "startd_gpus" else _slot_gpus()
    made = _LAYOUTS[style](screen, kind)
    return made if isinstance(made, Layout) else Layout(made)


def fit(found: Layout, screen: Screen) -> None:
    """Make Name and Machine narrower where a line would not fit, once all cells are known."""
    if not found.fixed or screen.wide or not screen.width:
        return
    name = next((one for one in found.columns if one.source == "Name"), None)
    machine = next((one for one in found.columns if one.source == "Machine"), None)
    crop = found.fixed + (name.width if name else 0) + (machine.width if machine else 0) - screen.room
    if crop <= 0:
        return
    if name is not None and machine is not None:
        narrow = max(7, machine.width - crop // 2)
        crop -= machine.width - narrow
        machine.width, machine.auto = narrow, False
    if name is not None:
        name.width, name.auto = max(12, name.width - crop), False


# --- columns


def _own(
    source: str,
    width: int,
    heading: str = "",
    form: str | None = "%v",
    *,
    cut: bool = True,
    alt: str = "?",
    wide: bool = True,
    **more: Any,
) -> Column:
    """A column that shows [???] where there is no value, and grows."""
    cut = cut and width != 0
    return column(source, heading or source, form, width, auto=True, cut=cut, alt=alt, alt_wide=wide, **more)


def _col(
    source: str, heading: str, form: str | None = "%v", width: int | None = None, by: As | None = None, alt: str = "",
    **more: Any,
) -> Column:  # fmt: skip
    """A column as wide as its heading, which grows; or of a given width."""
    if by is not None:
        form = by.form or None
    if width is None:
        return column(source, heading, form, -len(heading), auto=True, cut=False, by=by, alt=alt, **more)
    if form == "%v" and width:
        form = f"%{width}.{abs(width)}v"
    return column(source, heading, form, width, cut=True, by=by, alt=alt, **more)


def _by(word: str) -> As:
    return TABLE[word]


def _name(width: int, machine: int = 0) -> tuple[Column, Column]:
    """Name and Machine of at least these widths."""
    return (
        column("Name", "Name", "%v", -width, auto=True, cut=False),
        column("Machine", "Machine", "%v", -(machine or 7), auto=True, cut=False),
    )


def _load() -> Column:
    return _own("CondorLoadAvg", 6, "LoadAv", None, by=_by("LOAD_AVG"))


def _normal(screen: Screen, kind: str) -> list[Column]:
    room, wide = screen.room, screen.wide
    if room > 79 and not wide:
        name = _own("Name", -12, cut=True)
    else:
        name = _own("Name", -34 if wide else -18, cut=not wide)
    if kind == "java":
        middle = [_own("JavaVendor", -10, cut=not wide), _own("JavaVersion", -6, "Ver", cut=not wide)]
    elif kind == "vm":
        middle = [_own("VM_Type", -6, "VmType"), _own("VM_Networking_Types", -9, "Network")]
    else:
        middle = [_own("OpSys", -10), _own("Arch", -6)]
    memory = _own("VM_Memory", 0, "VMMem", "%4d") if kind == "vm" else _own("Memory", 0, "Mem", "%4d")
    since = column(
        "EnteredCurrentActivity", "ActivityTime" if wide else "  ActvtyTime", "%T", 12, auto=True, cut=True,
        by=_by("ACTIVITY_TIME"), alt="-", joined=not wide,
    )  # fmt: skip
    return [name, *middle, _own("State", -9), _own("Activity", -8), _load(), memory, since]


def _absent(screen: Screen) -> list[Column]:
    return [
        _own("Name", -34, cut=not screen.wide),
        _own("OpSys", -10),
        _own("Arch", -8),
        _own("LastHeardFrom", -11, "Went Absent", None, by=_by("DATE")),
        _own("ClassAdLifetime", -11, "Will Forget", "%Y", by=_by("DUE_DATE")),
    ]


def _offline(screen: Screen) -> list[Column]:
    universes = _own(
        "OfflineUniverses", -42, "Offline Universes", None, cut=not screen.wide, by=_by("STRINGS_FROM_LIST")
    )
    return [_own("Name", -34, cut=not screen.wide), universes]


def _narrow(screen: Screen, wide: int, usual: int, rest: int) -> Column:
    """Name, which takes what the others leave on a wide screen."""
    width = -34 if screen.wide else -usual
    if screen.room > 79 and not screen.wide:
        width = max(-40, rest - screen.room)
    return _own("Name", width, cut=not screen.wide) if wide else _own("Name", width)


def _server(screen: Screen, _: str) -> list[Column]:
    return [
        _narrow(screen, 1, 13, 65),
        _own("OpSys", -11),
        _own("Arch", -6),
        _load(),
        *(
            _own(name, 0, name, form)
            for name, form in (("Memory", "%8d"), ("Disk", "%9d"), ("Mips", "%7d"), ("KFlops", "%9d"))
        ),
    ]


def _state(screen: Screen, _: str) -> list[Column]:
    width = 12 if screen.wide or screen.room > 90 else 11
    idle = _own("KeyboardIdle", 12, "  KbdIdle", None, by=_by("TIME"), joined=width == 11)
    return [
        _narrow(screen, 1, 12, 34 + 3 * width),
        _own("Cpus", 3, "Cpu"),
        _own("Memory", 5, " Mem"),
        _load(),
        idle,
        _own("State", -7),
        _own("EnteredCurrentState", width, "  StateTime", "%T", by=_by("ELAPSED_TIME")),
        _own("Activity", -5, "Activ"),
        _own("EnteredCurrentActivity", width, "  ActvtyTime", "%T", by=_by("ELAPSED_TIME")),
    ]


def _run(screen: Screen, kind: str) -> list[Column]:
    wide = screen.wide
    if kind == "java":
        middle = [_own("JavaVendor", -11, cut=not wide), _own("JavaVersion", -6, "Ver", cut=not wide)]
    elif kind == "vm":
        middle = [
            _own("VM_Type", -6, "VMType", cut=not wide),
            _own("VM_Networking_Types", -11, "Network", cut=not wide),
        ]
    else:
        middle = [_own("OpSys", -11), _own("Arch", -6)]
    users = [_own("RemoteUser", -20, cut=not wide), _own("ClientMachine", -16, cut=not wide)]
    return [_narrow(screen, 1, 15, 63), *middle, _load(), *users]


# --- machines rolled up


def _tag(value: Any, _: ClassAd) -> str:
    text = value if isinstance(value, str) else ""
    return {"Static": "S", "Partitionable": " "}.get(text, text[:1])


def _machine(width: int = 7) -> list[Column]:
    return [
        _name(0, width)[1],
        _col("OpSys", "Platform", by=_by("PLATFORM")),
        _col("NumDynamicSlots", "Slot", "%4d"),
        _col("SlotType", "s", by=As("any", render=_tag), joined=True),
    ]


def _amounts() -> list[Column]:
    return [
        _col("TotalSlotCpus", "Cpus", "%4d"),
        _col("TotalSlotGpus", "Gpus", "%4d"),
        _col("TotalSlotMemory/1024.0", " TotalGb", "%8.2f"),
    ]


def _work() -> list[Column]:
    return [
        _col("TotalLoadAvg*1.0/TotalCpus", "CpuLoad", "%7.2f"),
        _col("Activity", "ST", width=2, by=_by("ACTIVITY_CODE")),
        _col("RecentJobStarts/20.0", "Jobs/Min", "%8.2f", alt="_"),
    ]


def _compact() -> Layout:
    columns = [
        *_machine(12),
        *_amounts(),
        _col("Cpus", "FreCpu", "%6d"),
        _col("Memory/1024.0", " FreeGb ", "%8.2f"),
        *_work(),
        _col("Max(ChildMemory)/1024.0", "MaxSlotGb", "%9.2f", alt="*"),
    ]
    places = {"cpus": 7, "memory": 8, "code": 10, "starts": 11, "largest": 12}
    return Layout(columns, _WHOLE, places)


def _compact_server() -> Layout:
    speed = [_col("Mips", " Mips  ", "%7d", alt="-"), _col("KFlops", " KFlops  ", "%9d", alt="-")]
    return Layout([*_machine(), *_amounts(), *speed, *_work()], _WHOLE, {"code": 10, "starts": 11})


def _compact_state() -> Layout:
    return Layout([*_machine(), *_amounts(), *_work()], "", {"code": 8, "starts": 9})


def _compact_run() -> Layout:
    return Layout([*_machine(), _col("ChildRemoteUser", "Users", by=_by("UNIQUE"))], CONDITIONS["claimed"][1], {})


def _total_gpus(_: Any, ad: ClassAd) -> str | None:
    assigned = string(ad, "AssignedGPUs")
    if assigned is None:
        return None
    devices = words_of(assigned)
    known = {device.lower() for device in devices}
    offline = sum(device.lower() in known for device in words_of(string(ad, "OfflineGPUs") or ""))
    return f"{len(devices):4}-{offline}".ljust(7) if offline else f"{len(devices):4}".ljust(7)


def _compact_gpus() -> Layout:
    columns = [
        *_machine(),
        _col("GPUs", "FreGPU", "%6d"),
        _col(
            "TotalSlotGPUs", "TotGPUs", width=7, by=As("any", render=_total_gpus, needs=("AssignedGPUs", "OfflineGPUs"))
        ),
        # Filled by what is known of the devices (compact.Devices).
        _col("AssignedGPUs", "Capability"),
        _col("AssignedGPUs", "GPUsMemory"),
        _col("AssignedGPUs", "DeviceNames"),
    ]
    return Layout(columns, CONDITIONS["gpus"][1], {"devices": 6})


def _compact_startd_gpus() -> Layout:
    return Layout([*_machine(), _col("DetectedGPUs", "GPUs", by=_by("MEMBER_COUNT"))], "TotalGPUs > 0", {})


_COMPACT: Final[dict[str, Callable[[], Layout]]] = {
    "normal": _compact, "server": _compact_server, "state": _compact_state, "run": _compact_run, "gpus": _compact_gpus,
}  # fmt: skip


# --- GPUs


def _slot_gpus() -> Layout:
    names = 'GPUs_DeviceName?:join(",",evalineachcontext(DeviceName,AvailableGPUs))?:CUDADeviceName'
    columns = [
        _col("Name", "Name"),
        _col("Activity", "ST", width=2, by=_by("ACTIVITY_CODE")),
        _col("RemoteUser", "User", "%s", alt="_"),
        _col("GPUs", "GPUs", "%4d"),
        _col("GPUs_GlobalMemoryMB", "GPU-Memory", by=_by("READABLE_MB"), alt="_"),
        _col(names, "GPU-Name", "%s", alt="*"),
    ]
    return Layout(columns, _GPUS)


def _startd_gpus() -> Layout:
    columns = [
        _col("Name", "Name"),
        _col("DetectedCPUs", "Cores"),
        _col("DetectedMemory", "  Memory", width=10, by=_by("READABLE_MB")),
        _col("DetectedGPUs", "GPUs", by=_by("MEMBER_COUNT")),
        _col("evalInEachContext(GlobalMemoryMB,DetectedGPUs)", "GPU-Memory", by=_by("UNIQUE")),
        _col("evalInEachContext(DeviceName,DetectedGPUs)", "GPU-Name", by=_by("UNIQUE")),
        _col("OfflineGPUs", "Offline-GPUs", by=_by("UNIQUE")),
    ]
    return Layout(columns, "TotalGPUs > 0")


# --- daemons


def _jobs(prefix: str) -> Layout:
    counts = (
        ("RunningJobs", "RunningJobs", "%11d"), ("IdleJobs", "  IdleJobs", "%10d"), ("HeldJobs", "  HeldJobs", "%10d"),
    )  # fmt: skip
    columns = [*_name(15, 12), *(_col(prefix + name, heading, form) for name, heading, form in counts)]
    return Layout(columns, fixed=35)


def _schedd_data(_screen: Screen, _kind: str) -> Layout:
    columns = [_name(15)[0]]
    for first, heading, form, what in (
        ("TransferQueueNumDownloading", "Download", "%8d", "Download"),
        ("TransferQueueNumUploading", "      Upload", "%12d", "Upload"),
    ):
        columns += [
            _col(first, heading, form),
            _col(f"FileTransfer{what}BytesPerSecond_5m/1024.0", "KB/sec(5m)", "%9.2f"),
            _col(f"TransferQueueNumWaitingTo{what}", "Waiting", "%7d"),
            _col(f"FileTransferMBWaitingTo{what}", "WaitingMB", "%9.2f"),
        ]
    return Layout(columns, "TransferQueueMaxUploading isnt undefined", fixed=8 + 9 + 7 + 12 + 8 + 9 + 5)


def _schedd_run(_screen: Screen, _kind: str) -> Layout:
    columns = [
        _name(15)[0],
        _col("TotalJobAds", "TotalJobs", "%9d"),
        _col("ShadowsRunning", "Shadows", "%7d"),
        _col("TotalSchedulerJobsRunning", "ActiveDAGs", "%10d"),
        _col("TotalSchedulerJobsIdle", "IdleDAGs", "%8d"),
        _col("RecentJobsCompleted", "RcntDone", "%8d"),
        _col("RecentJobsStarted", "RcntStart", "%9d"),
    ]
    return Layout(columns, "(ShadowsRunning+TotalSchedulerJobsRunning) > 0", fixed=35)


def _negotiator(_screen: Screen, _kind: str) -> Layout:
    last = "LastNegotiationCycle"
    columns = [
        _name(12)[0],
        _col(f"{last}End0", "LastCycleEnd", width=12, by=_by("DATE")),
        _col(f"{last}Duration0", "(Sec)", "%5d"),
        _col(f"{last}CandidateSlots0", "  Slots", "%7d"),
        _col(f"{last}ActiveSubmitterCount0", "Submitrs", "%8d"),
        _col(f"{last}NumSchedulers0", "Schedds", "%7d"),
        _col(f"{last}NumIdleJobs0", "   Jobs", "%7d"),
        _col(f"{last}Matches0", "Matches", "%7d"),
        _col(f"{last}Rejections0", "Rejections", "%10d"),
    ]
    return Layout(columns, fixed=12 + 4 + 8 + 7 + 8 + 7)


def _master(_screen: Screen, _kind: str) -> list[Column]:
    return [
        _name(12)[0],
        _col("CondorVersion", "Version", width=-14, by=_by("CONDOR_VERSION")),
        _col("DetectedCpus", "Cpus", "%4d", 4, alt="?", alt_wide=True),
        _col("DetectedMemory", "  Memory", width=10, by=_by("READABLE_MB"), alt="?", alt_wide=True),
        _col("DaemonStartTime", "   Uptime", width=13, by=_by("ELAPSED_TIME")),
    ]


def _startd(_screen: Screen, _kind: str) -> list[Column]:
    return [
        _col("Name", "Name"),
        _col("OpSys", "Platform", by=_by("PLATFORM")),
        _col("CondorVersion", "Version", by=_by("CONDOR_VERSION")),
        _col("DetectedCpus", "Cpus", "%4d", 4, alt="?", alt_wide=True),
        _col("DetectedMemory", "  Memory", width=10, by=_by("READABLE_MB"), alt="?", alt_wide=True),
        _col("DetectedGPUs", "GPUs", width=5, by=_by("MEMBER_COUNT")),
        _col("DaemonStartTime", "   Uptime", width=13, by=_by("ELAPSED_TIME")),
    ]


def _collector(screen: Screen, _kind: str) -> list[Column]:
    name = machine = -34
    if not screen.wide:
        name, machine = -28, -18
        if screen.room > 79:
            spare = min(screen.room - (28 + 18 + 11 + 8 + 10 + 4), 50)
            more = min(20, spare * 2 // 3)
            name, machine = name - more, machine - min(30, spare - more)
    return [
        _own("Name", name, cut=not screen.wide),
        _own("Machine", machine, cut=not screen.wide),
        _own("RunningJobs", 0, "RunningJobs", "%11d"),
        _own("IdleJobs", 0, "IdleJobs", "%8d"),
        _own("HostsTotal", 0, "HostsTotal", "%10d"),
    ]


def _storage(usual: int, rest: int) -> Callable[[Screen, str], list[Column]]:
    def made(screen: Screen, _kind: str) -> list[Column]:
        disk = _own("Disk", 0, "AvailDisk", "%9d")
        return [_narrow(screen, 1, usual, rest), disk, _own("Subnet", 0, "Subnet", "%-11s")]

    return made


def _defrag(_screen: Screen, _kind: str) -> list[Column]:
    return [
        _name(12)[0],
        _col("MachinesDraining", "Draining", "%8d"),
        _col("MachinesDrainingPeak", "    Peak", "%8d"),
        _col("DrainedMachines", "TotalDrained", "%12d"),
    ]


def _accounting(screen: Screen, _kind: str) -> list[Column]:
    name = column("Name", "Name", "%v", -12, auto=screen.wide, cut=False)
    return [
        name,
        _col("Priority", "Priority", "%8.2f"),
        _col("PriorityFactor", "PrioFactor", "%10.2f"),
        _col("ResourcesUsed", "ResInUse", "%8d"),
        _col("WeightedAccumulatedUsage", "WeightedUsage", "%13.2f", 13),
        _col("LastUsageTime", "  LastUsage", width=12, by=_by("ELAPSED_TIME")),
    ]


def _grid(screen: Screen, _kind: str) -> list[Column]:
    width = max(-40, 41 - screen.room) if screen.room > 79 and not screen.wide else -34
    counts = (
        ("NumJobs", "NumJobs", "%7d"), ("SubmitsAllowed", "Allowed", "%7d"), ("SubmitsWanted", " Wanted", "%7d"),
        ("RunningJobs", "RunningJobs", "%11d"), ("IdleJobs", "IdleJobs", "%8d"),
    )  # fmt: skip
    return [
        _own("Name", width, cut=not screen.wide),
        *(_own(name, 0, heading, form) for name, heading, form in counts),
    ]


def _any(screen: Screen, _kind: str) -> list[Column]:
    kind = As("str", show=lambda value, _: value.encode()[:18].decode("utf-8", "ignore") or "None")
    return [
        column("MyType", "MyType", None, -18, auto=True, cut=True, by=kind, always=True),
        column("TargetType", "TargetType", None, -18, auto=True, cut=True, by=kind, always=True),
        _own("Name", 0, "Name", "%-41s" if screen.wide else "%-41.41s", wide=False),
    ]


def _hads(_screen: Screen, _kind: str) -> list[Column]:
    """Ours: HTCondor shows its HADs as any other ad."""
    return [
        _col("Name", "Name" + " " * 16),
        _col("HadIsActive", "HadIsActive"),
        _col("HadState", "HadState"),
        _col("HadEpoch", " Epoch", "%6d"),
        _col("HadStateSince", "Since      ", by=_by("DATE")),
    ]


_LAYOUTS: Final[dict[str, Callable[[Screen, str], Layout | list[Column]]]] = {
    "normal": _normal,
    "server": _server,
    "state": _state,
    "run": _run,
    "startd": _startd,
    "schedd": lambda _screen, _kind: _jobs("Total"),
    "schedd_data": _schedd_data,
    "schedd_run": _schedd_run,
    "submitters": lambda _screen, _kind: _jobs(""),
    "negotiator": _negotiator,
    "collector": _collector,
    "master": _master,
    "ckptsrvr": _storage(28, 50),
    "storage": _storage(30, 48),
    "defrag": _defrag,
    "accounting": _accounting,
    "grid": _grid,
    "had": _hads,
    "any": _any,
}


def mask_of(found: Layout, screen: Screen) -> Mask:
    return Mask(found.columns, prefix=" ", row_suffix="\n", overall=screen.room if screen.width else 0, headings=True)

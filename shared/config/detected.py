"""What is known of the machine and the process before any file is read: DETECTED_*, host name, platform."""

from __future__ import annotations

import getpass
import os
import platform
import pwd
import socket

import psutil

from shared.config.conditions import VERSION
from shared.linux_release import LinuxRelease, linux_release

_OPSYS = {"Linux": "LINUX", "Darwin": "macOS"}


def _address(family: socket.AddressFamily) -> str:
    """The first address of this family that other machines could reach; else the loopback's."""
    fallback = ""
    for addresses in psutil.net_if_addrs().values():
        for one in addresses:
            if one.family == family:
                address = str(one.address).partition("%")[0]
                if not address.startswith(("127.", "::1", "fe80")):
                    return address
                fallback = fallback or address
    return fallback


def _home() -> str:
    """The home of user condor, whose directory LOCAL_DIR is; that of the present user if there is none."""
    try:
        return pwd.getpwnam("condor").pw_dir
    except KeyError:
        return os.path.expanduser("~")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # a container may run as a number without a name


def detect(*, subsystem: str, local_name: str, config_root: str) -> dict[str, str]:
    """Macros by name, MiB for memory. `config_root` is the directory of the first file, or "".

    No name server is asked: FULL_HOSTNAME is what the machine calls itself.
    """
    host = socket.gethostname()
    threads = psutil.cpu_count(logical=True) or 1
    cores = psutil.cpu_count(logical=False) or threads
    ipv4, ipv6 = _address(socket.AF_INET), _address(socket.AF_INET6)
    uname = platform.uname()
    opsys = uname.system
    release = linux_release() if opsys == "Linux" else LinuxRelease(opsys, opsys)
    return {
        "FULL_HOSTNAME": host,
        "HOSTNAME": host.partition(".")[0],
        "IP_ADDRESS": ipv4 or ipv6,
        "IPV4_ADDRESS": ipv4,
        "IPV6_ADDRESS": ipv6,
        "ARCH": uname.machine.upper(),
        "OPSYS": _OPSYS.get(opsys, opsys.upper()),
        "OPSYSLEGACY": _OPSYS.get(opsys, opsys.upper()),
        "OPSYSNAME": release.name,
        "OPSYSSHORTNAME": release.name,
        "OPSYSLONGNAME": release.long_name,
        "OPSYSANDVER": release.versioned,
        "OPSYSMAJORVER": str(release.major),
        "OPSYSVER": str(release.version),
        "UTSNAME_SYSNAME": uname.system,
        "UTSNAME_NODENAME": uname.node,
        "UTSNAME_RELEASE": uname.release,
        "UTSNAME_VERSION": uname.version,
        "UTSNAME_MACHINE": uname.machine,
        "UNAME_ARCH": uname.machine,
        "UNAME_OPSYS": opsys,
        "DETECTED_CPUS": str(threads),
        "DETECTED_CORES": str(threads),
        "DETECTED_PHYSICAL_CPUS": str(cores),
        "DETECTED_CPUS_LIMIT": str(len(os.sched_getaffinity(0)) or threads),
        "DETECTED_MEMORY": str(psutil.virtual_memory().total >> 20),
        "TILDE": _home(),
        "USERNAME": _user(),
        "REAL_UID": str(os.getuid()),
        "REAL_GID": str(os.getgid()),
        "PID": str(os.getpid()),
        "PPID": str(os.getppid()),
        "CondorIsAdmin": "true" if os.geteuid() == 0 else "false",
        "CONDOR_VERSION": ".".join(map(str, VERSION)),
        "SUBSYSTEM": subsystem,
        "LOCALNAME": local_name or subsystem,
        "CONFIG_ROOT": config_root,
    }

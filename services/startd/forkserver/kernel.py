"""What Linux has and Python's standard library lacks: namespaces, mounts, births inside of a cgroup, Landlock.

All of it by way of libc; every failure is an OSError that names the call.
"""

import ctypes
import os
import struct

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_INTO_CGROUP = 0x200000000

MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_NOATIME, MS_BIND, MS_REC, MS_SLAVE, MS_SHARED = 1024, 4096, 16384, 1 << 19, 1 << 20
MNT_DETACH = 2

EFD_CLOEXEC_NONBLOCK = 0o2000000 | 0o4000

# The same on all machines with the generic table of system calls, and on x86-64.
_SYS_CLONE3 = 435
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD, _SYS_LANDLOCK_RESTRICT = 444, 445, 446

_libc = ctypes.CDLL(None, use_errno=True)
# A fork must not happen while the interpreter's lock is given away, as ctypes does around calls of a CDLL.
_libc_locked = ctypes.PyDLL(None, use_errno=True)


def _check(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int) -> None:
    _check(_libc.prctl(option, value, 0, 0, 0), f"prctl({option})")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def mount(source: str, target: str, fstype: str = "", flags: int = 0, options: str = "") -> None:
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        fstype.encode() or None,
        ctypes.c_ulong(flags),
        os.fsencode(options) or None,
    )
    _check(result, f"mount {source} on {target}")


def unmount(target: str) -> None:
    """Also while it is in use: it goes when its last user does."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


class _CloneArguments(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "flags",
            "pidfd",
            "child_tid",
            "parent_tid",
            "exit_signal",
            "stack",
            "stack_size",
            "tls",
            "set_tid",
            "set_tid_size",
            "cgroup",
        )
    ]


def fork_into(cgroup: str) -> int:
    """fork() of a process that is born in this cgroup (version 2): it has never been outside, and nothing has to be
    moved. For a process with one thread. Raises OSError: ENOSYS and EPERM where it can not be done this way."""
    folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        arguments = _CloneArguments(flags=CLONE_INTO_CGROUP, exit_signal=17, cgroup=folder)
        pid: int = _libc_locked.syscall(_SYS_CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments))
    finally:
        os.close(folder)
    return _check(pid, f"clone3 into {cgroup}")


def event_counter() -> int:
    """An eventfd: reading it gives how often it was told of something."""
    return _check(_libc.eventfd(0, EFD_CLOEXEC_NONBLOCK), "eventfd")


# ---------------------------------------------------------------- Landlock

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_AND_MAKE = 0x1FF << 4  # REMOVE_DIR, REMOVE_FILE and the seven MAKE_*
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_OF_FILES = _WRITE_FILE | _READ_FILE | _TRUNCATE
_SCOPE_SIGNAL = 2
_RULE_PATH = 1
_VERSION_FLAG = 1


def landlock_version() -> int:
    """0: this kernel has no Landlock, or it is switched off. 6 and more can keep signals in."""
    found = int(_libc.syscall(_SYS_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG)))
    return max(0, found)


def landlock(hidden: list[str], permitted: list[str]) -> None:
    """Confine this process and its children for ever: no signals to, and no look into, processes outside of them; no
    reading, writing or making of files under the hidden directories, but for what is permitted in them. Landlock knows
    permissions only, so everything beside the way to a hidden directory is permitted; what appears on that way later
    is not.

    Names in hidden directories can still be listed. Does nothing without Landlock. Raises OSError."""
    version = landlock_version()
    if version < 3 or (version < 6 and not hidden):  # 3: the first that can permit all of what files need
        return
    handled = (_OF_FILES | _REMOVE_AND_MAKE | _REFER) if hidden else 0
    attributes = struct.pack("QQQ", handled, 0, _SCOPE_SIGNAL if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _check(
        _libc.syscall(_SYS_LANDLOCK_CREATE, attributes[:size], ctypes.c_size_t(size), ctypes.c_uint32(0)),
        "landlock_create_ruleset",
    )
    try:
        for path in (*beside(hidden), *permitted) if hidden else ():
            _permit(ruleset, path, handled)
        prctl(PR_SET_NO_NEW_PRIVS, 1) if os.geteuid() else None
        _check(_libc.syscall(_SYS_LANDLOCK_RESTRICT, ruleset, ctypes.c_uint32(0)), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _permit(ruleset: int, path: str, rights: int) -> None:
    try:
        where = os.open(path, 0o10000000 | os.O_CLOEXEC)  # O_PATH; a link is followed, to what it permits then
    except OSError:
        return  # gone meanwhile, or a link to nowhere: nothing to permit
    try:
        if not os.path.isdir(f"/proc/self/fd/{where}"):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, where)
        _check(
            _libc.syscall(_SYS_LANDLOCK_ADD, ruleset, ctypes.c_int(_RULE_PATH), rule, ctypes.c_uint32(0)),
            f"landlock_add_rule {path}",
        )
    finally:
        os.close(where)


def beside(hidden: list[str]) -> list[str]:
    """What has to be permitted so that only these directories are not: for each directory on the way to one of them,
    its other entries."""
    ways = {os.path.abspath(path) for path in hidden}
    above = {parent for path in ways for parent in _parents(path)}
    found = []
    for folder in sorted(above):
        try:
            names = os.listdir(folder)
        except OSError:
            continue  # what can not be listed is not permitted either
        for name in names:
            path = os.path.join(folder, name)
            if path not in above and path not in ways and not os.path.islink(path):
                found.append(path)
    return found


def _parents(path: str) -> list[str]:
    found = []
    while path != "/":
        path = os.path.dirname(path)
        found.append(path)
    return found

"""What Linux has and Python's standard library lacks: namespaces, mounts, births inside of a cgroup, Landlock,
filters of system calls.

All of it by way of libc; every failure is an OSError that names the call.
"""

import ctypes
import os
import stat
import struct

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
CAPABILITY_VERSION_3 = 0x20080522

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
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ALL = _READ | _WRITE_FILE | _REMOVE_AND_MAKE | _REFER | _TRUNCATE
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_RULE_PATH = 1
_VERSION_FLAG = 1
#: The first that keeps signals in (Linux 6.12).
LANDLOCK_SIGNALS = 6


def landlock_version() -> int:
    """0: this kernel has no Landlock, or it is switched off."""
    found = int(_libc.syscall(_SYS_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG)))
    return max(0, found)


def landlock(grants: list[list[str]] | None) -> None:
    """Confine this process and its children for ever: no signals to, and no look into, processes outside of them; of
    files nothing but what is granted, each a way of use ("r": read, list and execute; "w": everything) and a path.
    None: all files.

    Does nothing where Landlock can not keep signals in: who needs it there asks before. Raises OSError."""
    if landlock_version() < LANDLOCK_SIGNALS:
        return
    scoped = _SCOPE_SIGNALS if grants is None else _SCOPE_SIGNALS | _SCOPE_ABSTRACT_SOCKETS
    attributes = struct.pack("QQQ", 0 if grants is None else _ALL, 0, scoped)
    ruleset = _check(
        _libc.syscall(_SYS_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)),
        "landlock_create_ruleset",
    )
    try:
        for use, path in grants or ():
            _grant(ruleset, path, _ALL if use == "w" else _READ)
        prctl(PR_SET_NO_NEW_PRIVS, 1) if os.geteuid() else None
        _check(_libc.syscall(_SYS_LANDLOCK_RESTRICT, ruleset, ctypes.c_uint32(0)), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _grant(ruleset: int, path: str, rights: int) -> None:
    try:
        where = os.open(path, 0o10000000 | os.O_CLOEXEC)  # O_PATH; a link is followed, to what it leads to now
    except OSError:
        return  # gone meanwhile: there is nothing to grant
    try:
        if not stat.S_ISDIR(os.fstat(where).st_mode):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, where)
        _check(
            _libc.syscall(_SYS_LANDLOCK_ADD, ruleset, ctypes.c_int(_RULE_PATH), rule, ctypes.c_uint32(0)),
            f"landlock_add_rule {path}",
        )
    finally:
        os.close(where)


# ---------------------------------------------------------------- rights


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def filter_calls(program: bytes) -> None:
    """Keep this process and its children to the system calls that the filter lets through (`seccomp`). They gain no
    privileges any more. Raises OSError."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    argument = _Program(len(program) // 8, program)
    _check(_libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(argument), 0, 0), "prctl(PR_SET_SECCOMP)")


def bound_capabilities(kept: int) -> None:
    """Take all capabilities but these (bits) out of what this process can ever get by starting a program. Nothing
    happens in a process without rights, which gets none anyhow (PR_SET_NO_NEW_PRIVS)."""
    number = 0
    # It ends at the first number that the kernel does not know.
    while kept >> number & 1 or _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1


def keep_capabilities(kept: int) -> None:
    """Give up all capabilities but these (bits), for this process and what it starts. Raises OSError."""
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    now = (ctypes.c_uint32 * 6)()  # twice: effective, permitted, inheritable
    _check(_libc.capget(header, now), "capget")
    for word in range(2):
        bits = kept >> 32 * word & 0xFFFFFFFF
        now[3 * word] &= bits
        now[3 * word + 1] &= bits
        now[3 * word + 2] = 0
    _check(_libc.capset(header, now), "capset")

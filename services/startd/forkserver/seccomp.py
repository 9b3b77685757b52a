"""The system calls that jobs do without: a filter for the kernel (seccomp), after the default profile of container
engines.

A list of what is refused rather than of what is allowed: programs go on working on kernels that are newer than this
list, and what is newer than it is answered with ENOSYS, as a kernel of its age does. Refused is what changes the
machine (mounts, modules, clocks, swap), what looks into it (perf, bpf, kernel keys), what makes namespaces, and ways
into the kernel that jobs seldom need and attacks often (userfaultfd, io_uring). Memory policies, ptrace of own children
and process_vm_readv stay: debuggers, MPI and numactl use them.

Source of the numbers: the kernel's unistd_64.h, unistd_32.h and asm-generic/unistd.h (Linux 6.1, and the later ones up
to 6.18, which are the same on all machines).
"""

import errno
import os
import struct
from typing import Final

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24  # in struct seccomp_data; of arguments the lower half
_INSTRUCTION = struct.Struct("=HBBI")

_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, -CGROUP, -UTS, -IPC, -USER, -PID, -NET
_NEW_TIME = 0x80
_TIOCSTI, _TIOCLINUX, _AF_VSOCK = 0x5412, 0x541C, 40
#: The highest number of this list's age (file_setattr of Linux 6.17): what is above it is not there for jobs.
_NEWEST: Final = 469
_X32 = 0x40000000

#: By name: the number on x86-64, i386 and aarch64; -1: it has none there.
_REFUSED: Final = {
    "acct": (163, 51, 89),
    "add_key": (248, 286, 217),
    "bpf": (321, 357, 280),
    "clock_settime": (227, 264, 112),
    "clock_settime64": (-1, 404, -1),
    "create_module": (174, 127, -1),
    "delete_module": (176, 129, 106),
    "fanotify_init": (300, 338, 262),
    "finit_module": (313, 350, 273),
    "get_kernel_syms": (177, 130, -1),
    "init_module": (175, 128, 105),
    "ioperm": (173, 101, -1),
    "iopl": (172, 110, -1),
    "kcmp": (312, 349, 272),
    "kexec_file_load": (320, -1, 294),
    "kexec_load": (246, 283, 104),
    "keyctl": (250, 288, 219),
    "lookup_dcookie": (212, 253, 18),
    "nfsservctl": (180, 169, 42),
    "open_by_handle_at": (304, 342, 265),
    "perf_event_open": (298, 336, 241),
    "pidfd_getfd": (438, 438, 438),
    "query_module": (178, 167, -1),
    "quotactl": (179, 131, 60),
    "quotactl_fd": (443, 443, 443),
    "reboot": (169, 88, 142),
    "request_key": (249, 287, 218),
    "settimeofday": (164, 79, 170),
    "stime": (-1, 25, -1),
    "swapoff": (168, 115, 225),
    "swapon": (167, 87, 224),
    "sysctl": (156, 149, -1),
    "sysfs": (139, 135, -1),
    "syslog": (103, 103, 116),
    "uselib": (134, 86, -1),
    "userfaultfd": (323, 374, 282),
    "ustat": (136, 62, -1),
    "vhangup": (153, 111, 58),
    "vm86": (-1, 166, -1),
    "vm86old": (-1, 113, -1),
}
#: The same of what only somebody with namespaces of his own can do.
_OF_NAMESPACES: Final = {
    "chroot": (161, 61, 51),
    "fsconfig": (431, 431, 431),
    "fsmount": (432, 432, 432),
    "fsopen": (430, 430, 430),
    "fspick": (433, 433, 433),
    "mount": (165, 21, 40),
    "mount_setattr": (442, 442, 442),
    "move_mount": (429, 429, 429),
    "open_tree": (428, 428, 428),
    "open_tree_attr": (467, 467, 467),
    "pivot_root": (155, 217, 41),
    "setdomainname": (171, 121, 162),
    "sethostname": (170, 74, 161),
    "setns": (308, 346, 268),
    "umount": (-1, 22, -1),
    "umount2": (166, 52, 39),
}
#: The same of what looks into other processes.
_OF_OTHERS: Final = {
    "process_vm_readv": (310, 347, 270),
    "process_vm_writev": (311, 348, 271),
    "ptrace": (101, 26, 117),
}
#: A program that is told so does it in another way: threads by clone, input and output without a ring.
_NOT_THERE: Final = {
    "io_uring_enter": (426, 426, 426),
    "io_uring_register": (427, 427, 427),
    "io_uring_setup": (425, 425, 425),
}
_CLONE, _CLONE3, _UNSHARE = (56, 120, 220), (435, 435, 435), (272, 310, 97)
_IOCTL, _SOCKET = (16, 54, 29), (41, 359, 198)
#: AUDIT_ARCH_*, in the order of the numbers above, by the machine's name.
_ARCHITECTURES: Final = {"x86_64": {0: 0xC000003E, 1: 0x40000003}, "aarch64": {2: 0xC00000B7}}

_Code = list[tuple[int, int, int, int]]  # of each instruction: what, jump if true, jump if false, operand


def _refuse(number: int) -> _Code:
    return [(_RETURN, 0, 0, _ERRNO | number)]


def _if_any_bit(offset: int, bits: int) -> _Code:
    return [(_LOAD, 0, 0, offset), (_JUMP_ANY_BIT, 0, 1, bits), *_refuse(errno.EPERM), (_RETURN, 0, 0, _ALLOW)]


def _if_one_of(offset: int, *values: int) -> _Code:
    found: _Code = [(_LOAD, 0, 0, offset)]
    for value in values:
        found += [(_JUMP_EQUAL, 0, 1, value), *_refuse(errno.EPERM)]
    return [*found, (_RETURN, 0, 0, _ALLOW)]


def _rules(column: int, *, namespaces: bool, others: bool) -> list[tuple[int, _Code]]:
    """What becomes of a call, by its number, in order."""
    found: dict[int, _Code] = {}
    refused = _REFUSED | ({} if namespaces else _OF_NAMESPACES) | ({} if others else _OF_OTHERS)
    for numbers in refused.values():
        found[numbers[column]] = _refuse(errno.EPERM)
    for numbers in _NOT_THERE.values():
        found[numbers[column]] = _refuse(errno.ENOSYS)
    if not namespaces:
        found[_CLONE[column]] = _if_any_bit(_FIRST, _NEW_NAMESPACES)
        found[_UNSHARE[column]] = _if_any_bit(_FIRST, _NEW_NAMESPACES | _NEW_TIME)
        found[_CLONE3[column]] = _refuse(errno.ENOSYS)  # its flags lie where no filter can look
    found[_IOCTL[column]] = _if_one_of(_SECOND, _TIOCSTI, _TIOCLINUX)
    found[_SOCKET[column]] = _if_one_of(_FIRST, _AF_VSOCK)
    found.pop(-1, None)
    return sorted(found.items())


def _search(rules: list[tuple[int, _Code]]) -> _Code:
    """Finds a number's rule in a few steps. The number is loaded."""
    if len(rules) == 1:
        number, code = rules[0]
        return [(_JUMP_EQUAL, 0, len(code), number), *code, (_RETURN, 0, 0, _ALLOW)]
    middle = len(rules) // 2
    lower, upper = _search(rules[:middle]), _search(rules[middle:])
    return [(_JUMP_AT_LEAST, len(lower), 0, rules[middle][0]), *lower, *upper]


def _filter(column: int, *, namespaces: bool, others: bool) -> _Code:
    missing = _refuse(errno.ENOSYS)
    calls = _search(_rules(column, namespaces=namespaces, others=others))
    return [(_LOAD, 0, 0, _NUMBER), (_JUMP_AT_LEAST, 0, 1, _NEWEST + 1), *missing, *calls]


def program(machine: str, *, namespaces: bool, others: bool) -> bytes:
    """The filter's instructions, as the kernel takes them; empty: there is none for this kind of machine.

    namespaces: jobs may make namespaces, and mount in them. others: they may look into processes of their account,
    which something else keeps to their own. Numbers of x32 are above all others, and so not there."""
    architectures = _ARCHITECTURES.get(machine)
    if architectures is None:
        return b""
    code: _Code = [(_LOAD, 0, 0, _ARCHITECTURE)]
    for column, name in architectures.items():
        calls = _filter(column, namespaces=namespaces, others=others)
        # A jump reaches 255 instructions far, an unconditional one any distance.
        code += [(_JUMP_EQUAL, 1, 0, name), (0x05, 0, 0, len(calls)), *calls]
    code += _refuse(errno.ENOSYS)
    return b"".join(_INSTRUCTION.pack(*one) for one in code)


_programs: dict[tuple[bool, bool], bytes] = {}


def program_here(*, namespaces: bool, others: bool) -> bytes:
    """The filter for this machine, made once in a process."""
    key = (namespaces, others)
    if key not in _programs:
        _programs[key] = program(os.uname().machine, namespaces=namespaces, others=others)
    return _programs[key]

#!/usr/bin/env python3
"""condor_chirp: what a running job does with files, attributes and the log at its access point.

The startd puts this program beside a job; it stands alone, for any Python from 3.6 on. It asks the one that is named in
`.chirp.config`, in HTCondor's protocol. Exit status: 0, or 1 where something failed.
"""

import os
import socket
import stat
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

USAGE = """Usage:
condor_chirp fetch REMOTE_FILE LOCAL_FILE
condor_chirp put [-mode MODE] [-perm PERM] LOCAL_FILE REMOTE_FILE
condor_chirp remove REMOTE_FILE
condor_chirp get_job_attr ATTRIBUTE
condor_chirp set_job_attr ATTRIBUTE VALUE
condor_chirp get_job_attr_delayed ATTRIBUTE
condor_chirp set_job_attr_delayed ATTRIBUTE VALUE
condor_chirp ulog TEXT
condor_chirp read [-offset OFFSET] [-stride LENGTH SKIP] REMOTE_FILE LENGTH
condor_chirp write [-offset OFFSET] [-stride LENGTH SKIP] REMOTE_FILE LOCAL_FILE [LENGTH]
condor_chirp mkdir REMOTE_PATH [MODE]
condor_chirp rmdir [-r] REMOTE_PATH
condor_chirp getdir [-l] REMOTE_PATH
condor_chirp rename OLD_PATH NEW_PATH
condor_chirp whoami
condor_chirp whoareyou HOST
condor_chirp link [-s] OLD_PATH NEW_PATH
condor_chirp readlink REMOTE_PATH [LENGTH]
condor_chirp stat REMOTE_PATH
condor_chirp lstat REMOTE_PATH
condor_chirp statfs REMOTE_PATH
condor_chirp access REMOTE_PATH MODE(rwxf)
condor_chirp chmod REMOTE_PATH PERM
condor_chirp chown REMOTE_PATH UID GID
condor_chirp lchown REMOTE_PATH UID GID
condor_chirp truncate REMOTE_PATH LENGTH
condor_chirp utime REMOTE_PATH ACCESSED MODIFIED
"""
ERRORS = {
    -1: "the cookie is wrong",
    -2: "not allowed",
    -3: "there is no such file or attribute",
    -4: "it is there already",
    -5: "too large",
    -6: "no room on the disk",
    -7: "no memory",
    -8: "the machine or the job does not allow this, or the request is malformed",
    -9: "too many open files",
    -10: "busy",
    -11: "try again",
    -12: "no such open file",
    -13: "it is a directory",
    -14: "it is no directory",
    -15: "the directory is not empty",
    -16: "another file system",
    -17: "the access point does not answer",
}
STAT = ("device", "inode", "mode", "nlink", "uid", "gid", "rdevice", "size", "blksize", "blocks")
STATFS = ("f_type", "f_bsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree")
PIECE = 1 << 16
#: So long it is tried to connect, seconds.
PATIENCE = 60


class Failed(Exception):
    pass


def words(*arguments: Any) -> bytes:
    """One line: blanks and backslashes in words are marked."""
    line = []
    for one in arguments:
        text = str(one)
        for letter in "\\ \t\n\r":
            text = text.replace(letter, "\\" + letter)
        line.append(text)
    return os.fsencode(" ".join(line) + "\n")


class Client:
    def __init__(self) -> None:
        path = os.environ.get("_CONDOR_CHIRP_CONFIG") or os.path.join(
            os.environ.get("_CONDOR_SCRATCH_DIR", "."), ".chirp.config"
        )
        give_up = time.time() + PATIENCE
        while True:
            try:
                with open(path) as file:
                    host, port, cookie = file.read().split()
            except (OSError, ValueError) as error:
                raise Failed(
                    "no Chirp for this job: {}: {} (its submit file wants +WantIOProxy = true)".format(path, error)
                ) from None
            try:
                self.socket = socket.create_connection((host, int(port)), timeout=120)
                break
            except OSError as error:
                if time.time() > give_up:  # what listens there may just be started again
                    raise Failed("cannot connect to {}:{}: {}".format(host, port, error)) from None
                time.sleep(0.5)
        self.stream = self.socket.makefile("rb")
        self.ask("cookie", cookie)

    def result(self) -> int:
        line = self.stream.readline(8192)
        if not line.endswith(b"\n"):
            raise Failed("the connection broke")
        number = int(line)
        if number < 0:
            raise Failed("{} ({})".format(ERRORS.get(number, "failed"), number))
        return number

    def ask(self, *arguments: Any) -> int:
        self.socket.sendall(words(*arguments))
        return self.result()

    def data(self, size: int) -> Iterator[bytes]:
        """So many bytes, in pieces."""
        while size:
            piece = self.stream.read(min(size, PIECE))
            if not piece:
                raise Failed("the connection broke")
            size -= len(piece)
            yield piece

    def text(self, *arguments: Any) -> bytes:
        return b"".join(self.data(self.ask(*arguments)))

    def line(self, *arguments: Any) -> bytes:
        self.ask(*arguments)
        return self.stream.readline(8192)

    def open(self, path: str, flags: str, mode: int) -> int:
        number = self.ask("open", path, flags, mode)
        self.stream.readline(8192)
        return number


def say(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def described(line: bytes, lead: str = "") -> str:
    numbers = [int(one) for one in line.split()]
    rows = [f"{lead}{name}: {number}\n" for name, number in zip(STAT, numbers)]
    for name, at in zip(("atime", "mtime", "ctime"), numbers[10:]):
        rows.append(f"{lead}{name}: {time.ctime(at)}\n")
    return "".join(rows)


def options(arguments: Tuple[str, ...]) -> Tuple[int, int, int, Tuple[str, ...]]:
    """-offset and -stride of read and write: (offset, length, skip), and what is left."""
    offset, stride, skip = 0, 0, 0
    while arguments and arguments[0] in ("-offset", "-stride"):
        if arguments[0] == "-offset":
            offset, arguments = int(arguments[1]), arguments[2:]
        else:
            stride, skip, arguments = int(arguments[1]), int(arguments[2]), arguments[3:]
    return offset, stride, skip, arguments


def fetch(remote: str, local: str) -> None:
    client = Client()
    size = client.ask("getfile", remote)
    with open(local, "wb") if local != "-" else os.fdopen(os.dup(1), "wb") as file:
        for piece in client.data(size):
            file.write(piece)


def put(*arguments: str) -> None:
    mode, perm = "cwb", 0o777
    while arguments and arguments[0] in ("-mode", "-perm"):
        if arguments[0] == "-mode":
            mode = arguments[1]
        else:
            perm = int(arguments[1], 8)
        arguments = arguments[2:]
    local, remote = arguments
    source = open(local, "rb") if local != "-" else sys.stdin.buffer
    with source as file:
        plain = local != "-" and stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        client = Client()
        if mode == "cwb" and plain:
            size = os.fstat(file.fileno()).st_size
            client.ask("putfile", remote, perm, size)
            left = size
            while left:
                piece = file.read(min(left, PIECE))
                if not piece:
                    raise Failed(f"{local} became shorter")
                client.socket.sendall(piece)
                left -= len(piece)
            if size and client.result() != size:
                raise Failed("not all of it was written")
            return
        number = client.open(remote, mode + "t" if mode == "cwb" else mode, perm)
        for piece in iter(lambda: file.read(PIECE), b""):
            client.socket.sendall(words("write", number, len(piece)) + piece)
            if client.result() != len(piece):
                raise Failed("not all of it was written")
        client.ask("close", number)


def read(*arguments: str) -> None:
    offset, stride, skip, (remote, length) = options(arguments)
    client = Client()
    number = client.open(remote, "r", 0)
    verb = ("sread", number, int(length), offset, stride, skip) if stride else ("pread", number, int(length), offset)
    say(client.text(*verb) + b"\n")


def write(*arguments: str) -> None:
    offset, stride, skip, left = options(arguments)
    remote, local = left[:2]
    most = int(left[2]) if len(left) > 2 else None
    source = open(local, "rb") if local != "-" else sys.stdin.buffer
    with source as file:
        client = Client()
        number = client.open(remote, "w", 0)
        while most is None or most:
            wanted = min(stride or PIECE, most if most is not None else stride or PIECE)
            piece = file.read(wanted)
            if not piece:
                break
            client.socket.sendall(words("pwrite", number, len(piece), offset) + piece)
            if client.result() != len(piece):
                raise Failed("not all of it was written")
            offset += skip if stride else len(piece)
            most = most - len(piece) if most is not None else None


def getdir(*arguments: str) -> None:
    if arguments[0] != "-l":
        (path,) = arguments
        say(Client().text("getdir", path))
        return
    lines = Client().text("getlongdir", arguments[1]).splitlines()
    for name, line in zip(lines[::2], lines[1::2]):
        say(name + b"\n" + described(line, "\t").encode())


def rmdir(*arguments: str) -> None:
    recursive = arguments[0] == "-r"
    (path,) = arguments[1:] if recursive else arguments
    Client().ask("rmall" if recursive else "rmdir", path)


def link(*arguments: str) -> None:
    symbolic = arguments[0] == "-s"
    old, new = arguments[1:] if symbolic else arguments
    Client().ask("symlink" if symbolic else "link", old, new)


def access(path: str, letters: str) -> None:
    mode = 0
    for letter in letters:
        mode |= {"r": os.R_OK, "w": os.W_OK, "x": os.X_OK, "f": os.F_OK}[letter]
    Client().ask("access", path, mode)


def statfs(path: str) -> None:
    for name, number in zip(STATFS, Client().line("statfs", path).split()):
        say(f"{name}: {int(number)}\n".encode())


COMMANDS: Dict[str, Callable[..., Any]] = {
    "fetch": fetch,
    "put": put,
    "read": read,
    "write": write,
    "getdir": getdir,
    "rmdir": rmdir,
    "link": link,
    "access": access,
    "statfs": statfs,
    "remove": lambda path: Client().ask("unlink", path),
    "get_job_attr": lambda name: say(Client().text("get_job_attr", name) + b"\n"),
    "set_job_attr": lambda name, value: Client().ask("set_job_attr", name, value),
    "get_job_attr_delayed": lambda name: say(Client().text("get_job_attr_delayed", name) + b"\n"),
    "set_job_attr_delayed": lambda name, value: Client().ask("set_job_attr_delayed", name, value),
    "ulog": lambda text: Client().ask("ulog", text),
    "mkdir": lambda path, mode="777": Client().ask("mkdir", path, int(mode, 8)),
    "rename": lambda old, new: Client().ask("rename", old, new),
    "whoami": lambda: say(Client().text("whoami", 1024) + b"\n"),
    "whoareyou": lambda host: say(Client().text("whoareyou", host, 1024) + b"\n"),
    "readlink": lambda path, most="1024": say(Client().text("readlink", path, int(most)) + b"\n"),
    "stat": lambda path: say(described(Client().line("stat", path)).encode()),
    "lstat": lambda path: say(described(Client().line("lstat", path)).encode()),
    "chmod": lambda path, mode: Client().ask("chmod", path, int(mode, 8)),
    "chown": lambda path, uid, gid: Client().ask("chown", path, int(uid), int(gid)),
    "lchown": lambda path, uid, gid: Client().ask("lchown", path, int(uid), int(gid)),
    "truncate": lambda path, size: Client().ask("truncate", path, int(size)),
    "utime": lambda path, accessed, modified: Client().ask("utime", path, int(accessed), int(modified)),
}


def main(arguments: List[str]) -> int:
    if not arguments or arguments[0] in ("-h", "-help", "--help"):
        sys.stderr.write(USAGE)
        return 1
    command = COMMANDS.get(arguments[0])
    if command is None:
        sys.stderr.write(f"condor_chirp: there is no command {arguments[0]}\n{USAGE}")
        return 1
    try:
        command(*arguments[1:])
    except Failed as error:
        sys.stderr.write(f"condor_chirp {arguments[0]}: {error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"condor_chirp {arguments[0]}: {error}\n")
        return 1
    except (TypeError, ValueError, IndexError, KeyError):
        usage = [line for line in USAGE.splitlines() if line.split()[1:2] == arguments[:1]]
        sys.stderr.write(f"Usage: {usage[0]}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A pool of HTCondor's own daemons: a shell in the unpacked reference (`daemons`), with a network, processes and a name
of its own, in which daemons are started, told of slots, and asked. All of it ends with the shell.
"""

from __future__ import annotations

import base64
import os
import select
import shutil
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.reference.asked import Missing
from tests.reference.daemons import PLACES, Daemons, environment

#: Seconds that one script may take.
PATIENCE_S: Final = 120.0
_ALONE: Final = ("unshare", "--mount", "--uts", "--net", "--pid", "--fork", "--kill-child")
_ENTER: Final = """
set -e
mount --make-rprivate /
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -t tmpfs -o size=1g,mode=755 tmpfs "$1/pool"
mount -t tmpfs -o size=1g,mode=1777 tmpfs "$1/tmp"
hostname refhost
ip link set lo up
exec chroot "$1" /bin/bash
"""
#: Of every pool: only what makes it quick, quiet and alone. Nothing that a case asks about.
_CONFIG: Final = f"""{PLACES}
EXECUTE = /pool/execute
COLLECTOR_HOST = 127.0.0.1:9618
NETWORK_INTERFACE = 127.0.0.1
NETWORK_HOSTNAME = refhost.ref
UID_DOMAIN = pool
FILESYSTEM_DOMAIN = pool
TRUST_UID_DOMAIN = True
ALLOW_READ = *
ALLOW_WRITE = *
ALLOW_DAEMON = *
ALLOW_NEGOTIATOR = *
ALLOW_ADMINISTRATOR = *
ALLOW_ADVERTISE_STARTD = *
ALLOW_ADVERTISE_SCHEDD = *
ALLOW_ADVERTISE_MASTER = *
SEC_DEFAULT_AUTHENTICATION = OPTIONAL
SEC_DEFAULT_AUTHENTICATION_METHODS = FS
SEC_DEFAULT_ENCRYPTION = OPTIONAL
SEC_DEFAULT_INTEGRITY = OPTIONAL
SEC_USE_FAMILY_SESSION = False
USE_SHARED_PORT = False
USE_PROCD = False
BASE_CGROUP =
RunBenchmarks = False
BENCHMARKS_JOBLIST =
ENABLE_URL_TRANSFERS = False
FILETRANSFER_PLUGINS =
HIBERNATION_PLUGIN =
DOCKER =
SINGULARITY =
COLLECTOR_ADDRESS_FILE = /pool/log/collector_address
NEGOTIATOR_ADDRESS_FILE = /pool/log/negotiator_address
SCHEDD_ADDRESS_FILE = /pool/log/schedd_address
"""
_ACCOUNTS: Final = "nobody:x:65534:65534::/tmp:/bin/sh\n"
_DONE: Final = "\x01done "


class Shell:
    """A shell with a pool's configuration, as root; a context manager. Files of the pool are below `/pool` there."""

    def __init__(self, daemons: Daemons, config: Sequence[str]) -> None:
        self._root = daemons.root
        self._config = config
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Shell:
        if shutil.which("ip") is None:
            raise Missing("a pool of the reference's daemons has a network of its own, which takes ip")
        accounts = self._root / "etc/passwd"
        if _ACCOUNTS not in accounts.read_text():
            accounts.write_text(accounts.read_text() + _ACCOUNTS)
        self._process = subprocess.Popen(
            [*_ALONE, "sh", "-c", _ENTER, "sh", str(self._root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="surrogateescape",
            env=environment(),
        )
        self.run("mkdir -p /pool/log /pool/spool /pool/execute && chown 64:64 /pool/* && chmod 755 /pool/execute")
        self.write("condor_config", "\n".join([_CONFIG.format(libexec=libexec(self._root)), *self._config]) + "\n")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()  # unshare's child, the shell, dies with it, and all others with their first process
            self._process.communicate()
            self._process = None

    def write(self, name: str, text: str) -> None:
        """A file below /pool."""
        self.run(f"cat > /pool/{name} <<'END OF FILE'\n{text.rstrip(chr(10))}\nEND OF FILE")

    def run(self, script: str, patience_s: float = PATIENCE_S) -> str:
        """What a script prints. Raises TimeoutError, and RuntimeError where it fails or the shell has ended."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{{\n{script}\n}} < /dev/null 2>&1\nprintf '\\001done %s\\n' $?\n")
        process.stdin.flush()
        end, said = time.monotonic() + patience_s, b""
        while True:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"not done in {patience_s} s: {script[:200]}")
            more = os.read(process.stdout.fileno(), 1 << 16)
            if not more:
                raise RuntimeError(f"the reference's shell ended: {said!r}")
            said += more
            before, done, after = said.partition(_DONE.encode())
            if done and after.endswith(b"\n"):
                text = before.decode(errors="surrogateescape")
                if after.strip() != b"0":
                    raise RuntimeError(f"status {after.strip().decode()} of {script[:300]}: {text[-2000:]}")
                return text

    def start(self, *names: str) -> None:
        """Start daemons (`collector`, ...), one after the other, and wait until each is there."""
        for name in names:
            self.run(
                f"condor_{name} -f {'-p 9618' if name == 'collector' else ''} > /pool/log/{name}.out 2>&1 &\n"
                f"for n in $(seq 600); do [ -s /pool/log/{name}_address ] && break; sleep 0.05; done\n"
                f"[ -s /pool/log/{name}_address ] || {{ tail -n 20 /pool/log/*Log; false; }}"
            )

    def listen(self, port: int) -> None:
        """Take connections on this port and never answer."""
        listening = (
            f"socket(S, PF_INET, SOCK_STREAM, 0) && bind(S, sockaddr_in({port}, INADDR_LOOPBACK)) && listen(S, 999)"
        )
        self.run(
            f"LC_ALL=C perl -MSocket -e '{listening} or die $!; $| = 1; print 1; sleep' > /pool/log/listening 2>&1 &"
        )
        self.until("[ -s /pool/log/listening ]")

    def advertise(self, slots: Sequence[tuple[dict[str, str], dict[str, str]]]) -> None:
        """Tell the collector of slots: each one's public ad and the private one with its claim id, which
        condor_advertise has no way to send. Attributes are texts of expressions."""
        update_startd_ad = 0
        sent = b"".join(_message(update_startd_ad, ads) for ads in slots)
        self.write("slots", base64.encodebytes(sent).decode())
        self.run("exec 3<>/dev/tcp/127.0.0.1/9618 && base64 -d /pool/slots >&3; exec 3>&-")
        self.until(f'[ "$(condor_status -af Name | wc -l)" = {len(slots)} ]')

    def until(self, condition: str, patience_s: float = PATIENCE_S) -> None:
        """Wait for a command to succeed."""
        self.run(f"until {condition}; do sleep 0.1; done", patience_s)


def _message(command: int, ads: Sequence[dict[str, str]]) -> bytes:
    """A command and its ads as HTCondor's daemons read them from a connection (its protocol CEDAR, unencrypted)."""
    parts = [struct.pack(">q", command)]
    for ad in ads:
        lines = [f"{name} = {text}" for name, text in ad.items()]
        parts.append(struct.pack(">q", len(lines)))
        parts += [line.encode() + b"\0" for line in [*lines, "", ""]]  # the last two: old names of types
    body = b"".join(parts)
    return b"\x01" + struct.pack(">I", len(body)) + body


def libexec(root: Path) -> str:
    """Where that package has its helpers."""
    (place,) = [path for path in ("/usr/libexec/condor", "/usr/lib/condor/libexec") if (root / path[1:]).is_dir()][:1]
    return place

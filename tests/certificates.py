"""A certificate authority for tests, made by the openssl command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

_CONFIG = """\
[ca]
default_ca = ours
[ours]
database = {at}/index
new_certs_dir = {at}
rand_serial = yes
default_md = sha256
unique_subject = no
copy_extensions = copy
policy = any
[any]
commonName = supplied
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
"""
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Pair(NamedTuple):
    """Files in PEM."""

    cert: Path
    key: Path


class Authority:
    """Files lie in `directory`, which must be there; `ca` is what others believe."""

    def __init__(self, directory: Path, name: str = "Test Authority") -> None:
        if shutil.which("openssl") is None:
            raise FileNotFoundError(
                "openssl is not installed. Install it (bin/test does; on Debian: apt-get install openssl)"
            )
        self.directory = directory
        self._config = directory / "openssl.cnf"
        self._config.write_text(_CONFIG.format(at=directory))
        (directory / "index").touch()
        self.ca = directory / "ca.pem"
        self._key = directory / "ca.key"
        self._run(
            "req",
            "-x509",
            *_KEY,
            "-keyout",
            self._key,
            "-out",
            self.ca,
            "-days",
            "2",
            "-subj",
            f"/CN={name}",
            "-extensions",
            "authority",
        )

    def issue(self, name: str, *hosts: str, expired: bool = False) -> Pair:
        """A certificate and its key. hosts: what it is for, as "IP:127.0.0.1" or "DNS:localhost"."""
        pair = Pair(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        request = self.directory / f"{name}.csr"
        alternatives = ("-addext", "subjectAltName=" + ",".join(hosts)) if hosts else ()
        self._run("req", *_KEY, "-keyout", pair.key, "-out", request, "-subj", f"/CN={name}", *alternatives)
        when = ("-startdate", "20200101000000Z", "-enddate", "20200201000000Z") if expired else ("-days", "1")
        self._run(
            "ca", "-batch", "-notext", "-in", request, "-out", pair.cert, "-cert", self.ca, "-keyfile", self._key, *when
        )
        pair.key.chmod(0o644)  # servers of tests may run as somebody else
        return pair

    def _run(self, command: str, *arguments: object) -> None:
        words = ["openssl", command, "-config", str(self._config), *map(str, arguments)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}\n{done.stderr}")

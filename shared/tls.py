"""TLS to the servers that a pool stands on, RabbitMQ and Redis: whom to believe, who we are, and what a handshake that
failed means.

The knobs are those by which HTCondor's clients know servers: AUTH_SSL_CLIENT_CAFILE, _CADIR, _USE_DEFAULT_CAS,
_CERTFILE and _KEYFILE, and SSL_SKIP_HOST_CHECK. Files may be named in a URL instead, for it alone:
amqps://user:password@host/vhost?cafile=/etc/pool/ca.pem, and likewise capath, certfile and keyfile.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from shared.config.knobs.tls import TlsSettings
from shared.errors import RetryableError

#: Parameters of a URL, and what they stand for.
IN_URL: Final = {"cafile": "ca_file", "capath": "ca_dir", "certfile": "cert_file", "keyfile": "key_file"}
#: Schemes of URLs.
WITH_TLS: Final = ("amqps", "rediss", "rediss+sentinel")
CA_FILE, CA_DIR = "AUTH_SSL_CLIENT_CAFILE", "AUTH_SSL_CLIENT_CADIR"
OWN_CA_FILE = "TRUST_DOMAIN_CAFILE"
CERT_FILE, KEY_FILE = "AUTH_SSL_CLIENT_CERTFILE", "AUTH_SSL_CLIENT_KEYFILE"

_EXPIRED = "its certificate has expired: renew it there (or this machine's clock is wrong)"
_YOUNG = "its certificate is not valid yet: one of the two machines' clocks is wrong"
_STRANGE = f"its certificate is of no authority that is known here: put the authority's certificate into {CA_FILE}"
_ELSEWHERE = (
    "its certificate is for another host: connect to a name that is in it, or have one made that has this name among "
    "its subject alternative names"
)
_PLAIN = "what answers there does not speak TLS: take the server's TLS port, or a URL without TLS (amqp:, redis:)"
_WANTED = f"it wants a certificate of ours: set {CERT_FILE} and {KEY_FILE}"
_REFUSED = f"it does not take the certificate of {CERT_FILE}: have one made by an authority that it believes"
#: What OpenSSL says, and the mend. The first that is found counts.
_MENDS: Final = (
    ("certificate has expired", _EXPIRED),
    ("certificate is not yet valid", _YOUNG),
    ("mismatch, certificate is not valid for", _ELSEWHERE),
    ("self-signed certificate", _STRANGE),
    ("self signed certificate", _STRANGE),
    ("unable to get local issuer certificate", _STRANGE),
    ("unable to get issuer certificate", _STRANGE),
    ("unable to verify the first certificate", _STRANGE),
    ("WRONG_VERSION_NUMBER", _PLAIN),
    ("RECORD_LAYER_FAILURE", _PLAIN),
    ("ALERT_CERTIFICATE_REQUIRED", _WANTED),
    ("ALERT_HANDSHAKE_FAILURE", _WANTED),
    ("ALERT_UNKNOWN_CA", _REFUSED),
    ("ALERT_BAD_CERTIFICATE", _REFUSED),
    ("ALERT_CERTIFICATE_", _REFUSED),
    ("ALERT_UNSUPPORTED_CERTIFICATE", _REFUSED),
)
_OPENSSL = re.compile(r"\[SSL(?:: \w+)?\][^'\"(]*|certificate verify failed:[^'\"(]*")


class TlsTrouble(RetryableError):
    """A certificate, key or authority of ours that can not be used: the text names the knob, the file and the mend.
    Retryable, as files are renewed while daemons run."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Paths, empty where there is none. default_cas: the machine's own authorities are believed besides ours.
    check_host: whether a certificate must name the host that was connected to. own_ca_file: the pool's own authority,
    which is believed besides too."""

    ca_file: str = ""
    ca_dir: str = ""
    cert_file: str = ""
    key_file: str = ""
    default_cas: bool = True
    check_host: bool = True
    own_ca_file: str = ""
    _made: dict[tuple[object, ...], ssl.SSLContext] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, settings: TlsSettings) -> ClientTls:
        """As the configuration says."""
        return cls(
            ca_file=settings.auth_ssl_client_cafile or "",
            ca_dir=settings.auth_ssl_client_cadir or "",
            cert_file=settings.auth_ssl_client_certfile or "",
            key_file=settings.auth_ssl_client_keyfile or "",
            default_cas=settings.auth_ssl_client_use_default_cas,
            check_host=not settings.ssl_skip_host_check,
            own_ca_file=settings.trust_domain_cafile if settings.roost_own_authority else "",
        )

    def for_url(self, url: str) -> tuple[ClientTls, str]:
        """What holds for one URL, which may name files itself, and the URL without them."""
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
        named: dict[str, Any] = {IN_URL[name]: value for name, value in query if name in IN_URL}
        if not named:
            return self, url
        rest = urlencode([(name, value) for name, value in query if name not in IN_URL])
        if "cert_file" in named:
            named.setdefault("key_file", "")  # its own, not that of another certificate
        return replace(self, **named, _made={}), urlunsplit(parts._replace(query=rest))

    def check(self, url: str) -> None:
        """Raises TlsTrouble where this URL is one with TLS and what is set for it can not be used. url: of nodes with
        commas in between, or of sentinels."""
        scheme = url.partition(":")[0].lower()
        if scheme in WITH_TLS:
            for one in url.split(",") if scheme == "amqps" else (url,):
                self.for_url(one.strip())[0].context()

    def context(self) -> ssl.SSLContext:
        """For a connection that is opened now: files that were renewed are read again. Raises TlsTrouble."""
        if self.key_file and not self.cert_file:
            raise TlsTrouble(f"{KEY_FILE} is set without {CERT_FILE}: name the certificate of that key")
        stamps = tuple(stamp(name, path) for name, path in self._files())
        known = self._made.get(stamps)
        if known is not None:
            return known
        context = self._new()
        self._made.clear()
        self._made[stamps] = context
        return context

    def _files(self) -> Iterator[tuple[str, str]]:
        named = ((CA_FILE, self.ca_file), (CERT_FILE, self.cert_file), (KEY_FILE, self.key_file), (CA_DIR, self.ca_dir))
        yield from ((name, path) for name, path in named if path)
        if self._own_ca():
            yield OWN_CA_FILE, self.own_ca_file

    def _own_ca(self) -> bool:
        # It may be made by a daemon that starts later.
        return bool(self.own_ca_file) and os.path.exists(self.own_ca_file)

    def _new(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificates and hosts
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.check_host
        load_authorities(context, (CA_FILE, self.ca_file), (CA_DIR, self.ca_dir))
        if self._own_ca():
            try:
                context.load_verify_locations(self.own_ca_file)
            except OSError as error:
                raise TlsTrouble(f"{OWN_CA_FILE}: {self.own_ca_file}: {words(error)}") from error
        if self.default_cas or not (self.ca_file or self.ca_dir or self.own_ca_file):
            load_machines_authorities(context)
        if self.cert_file:
            try:
                context.load_cert_chain(self.cert_file, self.key_file or None, lambda: no_password(KEY_FILE))
            except OSError as error:
                where = f"{self.cert_file} and {self.key_file}" if self.key_file else self.cert_file
                raise TlsTrouble(
                    f"{CERT_FILE}, {KEY_FILE}: {where}: {words(error)}; want a certificate (chain) and its key in PEM"
                ) from error
        return context


def explained(error: BaseException, server: str = "") -> str:
    """One line about a failed handshake: the server, OpenSSL's words, the mend. Empty where the error, with its causes,
    tells of no such thing. server: as a person knows it; empty where that is said already."""
    chain = list(_chain(error))
    ours = next((one for one in chain if isinstance(one, TlsTrouble)), None)
    if ours is not None:
        return str(ours)
    said = " ".join(" ".join(map(str, chain)).split())
    found = _OPENSSL.search(said)
    if found is None:
        return ""
    words = re.sub(r"\[SSL(?:: \w+)?\]\s*", "", found[0]).strip(" .,:") or found[0].strip("[] ")
    mend = next((mend for needle, mend in _MENDS if needle in said), "")
    return (f"TLS with {server}: " if server else "TLS: ") + words + (f"; {mend}" if mend else "")


def certificate_failed(error: BaseException) -> bool:
    """Whether it came, by its causes, of a certificate: theirs, which is not to be believed, or one of ours."""
    return any(isinstance(one, ssl.SSLCertVerificationError | TlsTrouble) for one in _chain(error))


#: For people, who have no daemon's knobs to set: what they set in their place.
_FOR_PEOPLE: Final = (
    (
        _STRANGE,
        "its certificate is of no authority that is known here: name a file with that authority's certificate in "
        f"ROOST_CA_FILE (or {CA_FILE})",
    ),
    (_PLAIN, "what answers there speaks HTTP without TLS: the URL begins with http://"),
    (_WANTED, "it wants a certificate of yours: name it, and its key, in ROOST_CERT_FILE and ROOST_KEY_FILE"),
    (_REFUSED, "it does not take the certificate of ROOST_CERT_FILE: have one made by an authority that it believes"),
)


def explained_to_people(error: BaseException) -> str:
    """`explained`, to somebody whose command or program could not speak with a gateway."""
    said = explained(error)
    for daemons, people in _FOR_PEOPLE:
        said = said.replace(daemons, people)
    return said


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__


def stamp(name: str, path: str) -> tuple[object, ...]:
    """What changes with a file. Raises TlsTrouble."""
    try:
        seen = os.stat(path)
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        raise TlsTrouble(f"{name}: {path}: {error.strerror or error}") from error
    return path, seen.st_ino, seen.st_mtime_ns, seen.st_size


def no_password(knob: str) -> str:
    """Raises TlsTrouble. OpenSSL would ask at the terminal, and the daemon would stand still."""
    raise TlsTrouble(f"{knob}: the key is encrypted, and a daemon has nobody to ask: store it without a password")


#: How OpenSSL finds an authority in a directory: by a digest of its name.
_BY_NAME: Final = re.compile(r"[0-9a-f]{8}\.[0-9]+")


def load_machines_authorities(context: ssl.SSLContext) -> None:
    """Have a context believe the authorities that the machine believes. OpenSSL reads a file of them whole, some 140 in
    15 to 35 ms, which each command would pay; of a directory where they can be found by name it reads what a handshake
    needs. So where there are both, and the directory has all that the file has, that alone is named."""
    paths = ssl.get_default_verify_paths()
    if not {paths.openssl_cafile_env, paths.openssl_capath_env} & set(os.environ) and paths.cafile and paths.capath:
        try:
            there = sum(_BY_NAME.fullmatch(name) is not None for name in os.listdir(paths.capath))
            with open(paths.cafile, "rb") as file:
                if 0 < file.read().count(b"-----BEGIN ") <= there:
                    context.load_verify_locations(capath=paths.capath)
                    return
        except OSError:
            pass  # OpenSSL knows what to make of them
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)


def load_authorities(context: ssl.SSLContext, file: tuple[str, str], directory: tuple[str, str]) -> None:
    """Have a context believe the authorities of a file and a directory, each a knob and its value; empty: none. Raises
    TlsTrouble, which names the knob."""
    (file_knob, ca_file), (directory_knob, ca_dir) = file, directory
    if not (ca_file or ca_dir):
        return
    try:
        context.load_verify_locations(ca_file or None, ca_dir or None)
    except OSError as error:
        raise TlsTrouble(
            f"{file_knob if ca_file else directory_knob}: {ca_file or ca_dir}: {words(error)}; want certificates of "
            "authorities in PEM"
        ) from error


def words(error: OSError) -> str:
    """What an error says, in one line."""
    return error.strerror or " ".join(str(error).split())

"""The file transfer plug-in that every execution point has: http, https and file, by HTCondor's plug-in protocol; and
osdf and pelican by the program `pelican`, where that is in PATH.

    PROGRAM -classad                                  what it can
    PROGRAM -infile ADS -outfile ADS [-upload]        transfer what the first file lists, tell the results in the second

The startd hands this text to a bare interpreter (`python -I -S -c`), as the job's account and inside the job's walls,
where nothing of Roost can be read: it needs the standard library alone.

A download is another file until it is whole: its length is what the server announced, and its checksum what the server
(Repr-Digest, Digest, Content-MD5) or the URL (`#sha256=...`) says. What may pass is tried again, later each time. No
message and no result has the query or the password of a URL: they may be the right to the file.

Meanwhile the file that `_ROOST_TRANSFER_PROGRESS` names says how far it is: bytes that went or came so far, and bytes
of all, 0 as long as nobody knows.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hashlib
import http.client
import json
import os
import random
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import IO, Any

VERSION = "1.0"
METHODS = ("http", "https", "file")
#: Those of objects in federations, and the program that has them (https://docs.pelicanplatform.org).
FEDERATED, PELICAN = ("osdf", "pelican"), "pelican"
#: Its exit status for what may pass.
PELICAN_RETRYABLE = 11
#: Times that a file is tried, and seconds before the second time; doubled each time, at most the longest.
TRIES, FIRST_S, LONGEST_S = 6, 0.5, 30.0
#: No byte for so long: the connection is dead.
STALL_S = 60.0
CHUNK = 1 << 18
#: Answers that may be others in a moment.
PASSING = frozenset((408, 425, 429, 500, 502, 503, 504))
SHOWN = 300
#: How far it is is told after so many seconds again.
TELL_S = 1.0


class Passing(Exception):
    """It may go well the next time. after_s: the server asks to wait so long."""

    def __init__(self, message: str, status: int = 0, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.after_s = after_s


class Final(Exception):
    """It would not go otherwise the next time."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Never to another protocol than https, but from http to http; and no password or token to another host."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme != "https"):
            raise Final(f"the server leads from {old.scheme} to {shown(newurl)}", code)
        found = super().redirect_request(req, fp, code, msg, headers, newurl)
        if found is not None and old.netloc != new.netloc:
            found.remove_header("Authorization")
        return found


class Progress:
    """How far the transfers are. path: of the file for who looks; empty: nobody does. files: how many are left."""

    def __init__(self) -> None:
        self.path = ""
        self.files = 0
        self.before = 0  # bytes of the files that are done
        self.total = 0
        self.told = 0.0

    def begins(self, size: int) -> None:
        """One more file of so many bytes (0: not known): what all have is known once it is the last one."""
        self.total = self.before + size if size and self.files == 1 else 0

    def stands(self, done: int) -> None:
        """So many bytes of it are there."""
        now = time.monotonic()
        if self.path and now - self.told >= TELL_S:
            self.told = now
            with contextlib.suppress(OSError):
                with open(f"{self.path}.new", "w", encoding="ascii") as file:
                    file.write(f"{self.before + done} {self.total}")
                os.replace(f"{self.path}.new", self.path)

    def ends(self, size: int) -> None:
        self.before += size
        self.files -= 1


progress = Progress()


class _Counted:
    """A file that is sent."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.done = 0

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(size)
        self.done += len(data)
        progress.stands(self.done)
        return data


_opener = urllib.request.build_opener(_Redirects)


def shown(url: str) -> str:
    """A URL without what nobody else is to read."""
    parts = urllib.parse.urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def main(words: list[str], out: IO[str] = sys.stdout) -> int:
    if "-classad" in words:
        methods = METHODS + (FEDERATED if shutil.which(PELICAN) else ())
        out.write(
            f'MultipleFileSupport = true\nPluginType = "FileTransfer"\nPluginVersion = "{VERSION}"\n'
            f'ProtocolVersion = 2\nSupportedMethods = "{",".join(methods)}"\n'
        )
        return 0
    upload = "-upload" in words
    try:
        infile, outfile = (words[words.index(name) + 1] for name in ("-infile", "-outfile"))
        with open(infile, encoding="utf-8", errors="surrogateescape") as file:
            asked = list(read_ads(file.read()))
    except (ValueError, IndexError, OSError, KeyError) as error:
        sys.stderr.write(f"want -infile FILE -outfile FILE [-upload]: {error}\n")
        return 2
    good = True
    progress.path, progress.files = os.environ.get("_ROOST_TRANSFER_PROGRESS", ""), len(asked)
    with open(outfile, "w", encoding="utf-8", errors="surrogateescape") as file:
        for ad in asked:
            if upload and ad.get("MakeDirectories") == "true":
                make_directories(ad["Url"])
            result = transfer(ad["Url"], ad["LocalFileName"], upload=upload)
            file.write(ad_text(result))
            file.flush()
            progress.ends(result["TransferFileBytes"])
            if not result["TransferSuccess"]:
                good = False
                sys.stderr.write(f"{result['TransferError']}\n")
                break  # one file that is missing keeps the job from its work: the others need not come
    return 0 if good else 1


def transfer(
    url: str, path: str, *, upload: bool, tries: int = TRIES, sleep: Callable[[float], None] = time.sleep
) -> dict[str, Any]:
    """Do one transfer, with all of its tries. Returns the ad that tells how it went."""
    started, size, status, tried = time.time(), 0, 0, 0
    trouble = ""
    while True:
        tried += 1
        try:
            size, status = (put if upload else get)(url, path)
            trouble = ""
            break
        except Passing as error:
            trouble, status, wait_s = str(error), error.status, error.after_s
        except Final as error:
            trouble, status = str(error), error.status
            break
        if tried >= tries:
            trouble = f"{trouble} (tried {tried} times)"
            break
        sleep(max(min(wait_s, LONGEST_S), min(FIRST_S * 2 ** (tried - 1), LONGEST_S) * random.uniform(0.75, 1.25)))
    parts = urllib.parse.urlsplit(url)
    result: dict[str, Any] = {
        "TransferSuccess": not trouble,
        "TransferType": "upload" if upload else "download",
        "TransferProtocol": parts.scheme.rpartition("+")[2],
        "TransferUrl": shown(url),
        "TransferFileName": os.path.basename(path),
        "TransferFileBytes": size,
        "TransferTotalBytes": size,
        "TransferStartTime": int(started),
        "TransferEndTime": int(time.time()),
        "TransferTries": tried,
        "TransferHostName": parts.hostname or "",
        "TransferLocalMachineName": socket.gethostname(),
    }
    if status:
        result["TransferHTTPStatusCode"] = status
    if trouble:
        result["TransferError"] = f"{shown(url)}: {trouble}"
    return result


# ---------------------------------------------------------------- both ways


def get(url: str, path: str) -> tuple[int, int]:
    """Bytes and status. Raises Passing, Final."""
    scheme = urllib.parse.urlsplit(url).scheme
    new = f"{path}.part"
    try:
        if scheme == "file":
            size, status = _copy(_local(url), new), 0
        elif _is_federated(scheme):
            size, status = _pelican("get", url, new), 0
        else:
            size, status = _download(url, new)
        os.replace(new, path)
    except OSError as error:
        raise Final(f"{path} can not be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(new)
    return size, status


def put(url: str, path: str) -> tuple[int, int]:
    """Bytes and status. Raises Passing, Final."""
    if urllib.parse.urlsplit(url).scheme == "file":
        target = _local(url)
        new = f"{target}.part.{os.getpid()}"
        try:
            size = _copy(path, new)
            os.replace(new, target)
        except OSError as error:
            raise Final(f"{target} can not be written: {error.strerror or error}") from error
        finally:
            with contextlib.suppress(OSError):
                os.unlink(new)
        return size, 0
    if _is_federated(urllib.parse.urlsplit(url).scheme):
        return _pelican("put", url, path), 0
    try:
        file = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise Final(f"{path} can not be read: {error.strerror}") from error
    with file:
        size = os.fstat(file.fileno()).st_size
        progress.begins(size)
        request = _request(url, "PUT")
        request.data = _Counted(file)
        request.add_header("Content-Length", str(size))
        request.add_header("Content-Type", "application/octet-stream")
        with _answer(request) as answer:
            answer.read(CHUNK)
            return size, answer.status


def _is_federated(scheme: str) -> bool:
    return scheme.rpartition("+")[2] in FEDERATED


def _pelican(what: str, url: str, path: str) -> int:
    """`pelican object get URL PATH` or `put PATH URL`, with the token that the URL names: bytes of the file. It finds
    tokens in _CONDOR_CREDS by itself, where the URL names none. Raises Passing, Final."""
    program = shutil.which(PELICAN)
    if program is None:
        raise Final(f"the program {PELICAN} is not on this machine")
    service, _, rest = url.partition("://")[0].rpartition("+")
    address = f"{rest}://{url.partition('://')[2]}"
    command = [program, "object", what, *([address, path] if what == "get" else [path, address])]
    token = f"{path}.token"
    try:
        if service:
            with open(os.open(token, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
                file.write(_token(service))
            command += ["--token", token]
        if what == "put":
            progress.begins(os.stat(path).st_size)
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as run:
            said = _said(run, path if what == "get" else "")
    except OSError as error:
        raise Final(f"{program} can not be run: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(token)
    if run.returncode:
        message = f"{PELICAN} ended with {run.returncode}: {_last(said).replace(address, shown(address))}"
        raise Passing(message) if run.returncode == PELICAN_RETRYABLE else Final(message)
    if not os.path.isfile(path):
        raise Final(f"{PELICAN} said that all went well, and there is no file")
    return os.path.getsize(path)


def _said(run: subprocess.Popen[bytes], path: str) -> bytes:
    """What it writes to its standard error. path: of the file that grows meanwhile, for who looks how far it is."""
    while True:
        try:
            return run.communicate(timeout=TELL_S)[1]
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                progress.stands(os.path.getsize(path))


def _last(said: bytes) -> str:
    """What it complains of, of its log: `time=... level=error msg="..."`, or plain lines."""
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    told = [line for line in lines if "Errors are retryable" not in line][-1:]
    found = re.search(r'msg="((?:[^"\\]|\\.)*)"', told[0]) if told else None
    return (found[1].replace('\\"', '"') if found else "".join(told).strip())[:SHOWN] or "it says nothing"


def make_directories(url: str) -> None:
    """Those of a file's URL. What can not be made is told with the file."""
    if urllib.parse.urlsplit(url).scheme == "file":
        with contextlib.suppress(OSError, Final):
            os.makedirs(os.path.dirname(_local(url)), exist_ok=True)


def _copy(source: str, target: str) -> int:
    try:
        file = open(source, "rb")  # noqa: SIM115
    except OSError as error:
        raise Final(f"{source} can not be read: {error.strerror}") from error
    with file, open(target, "xb") as copy:
        if not os.path.isfile(source):
            raise Final(f"{source} is no regular file")
        progress.begins(os.fstat(file.fileno()).st_size)
        while chunk := file.read(CHUNK):
            copy.write(chunk)
            progress.stands(copy.tell())
        return copy.tell()


def _local(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise Final("a file's URL is file:///PATH: it is a file of the execution point")
    return urllib.parse.unquote(parts.path)


def _download(url: str, path: str) -> tuple[int, int]:
    wanted = dict(_of_fragment(urllib.parse.urlsplit(url).fragment))
    with _answer(_request(url, "GET")) as answer, open(path, "xb") as file:
        wanted = _of_headers(answer.headers) | wanted
        digests = {name: hashlib.new(name) for name in wanted}
        announced = answer.headers.get("Content-Length", "")
        progress.begins(int(announced) if announced.isdigit() else 0)
        size = 0
        try:
            while chunk := answer.read(CHUNK):
                for digest in digests.values():
                    digest.update(chunk)
                file.write(chunk)
                size += len(chunk)
                progress.stands(size)
        except (http.client.HTTPException, ssl.SSLError, TimeoutError, ConnectionError) as error:
            raise Passing(f"broke off after {size} bytes: {error}", answer.status) from error
        if announced.isdigit() and size != int(announced):
            raise Passing(f"only {size} of {announced} bytes came", answer.status)
        for name, digest in digests.items():
            if digest.digest() != wanted[name]:
                raise Passing(f"its {name} is {digest.hexdigest()}, not {wanted[name].hex()} as it should be")
        return size, answer.status


def _of_fragment(fragment: str) -> Iterator[tuple[str, bytes]]:
    for part in fragment.split("&"):
        name, _, value = part.partition("=")
        if name in ("md5", "sha1", "sha256", "sha384", "sha512"):
            try:
                yield name, bytes.fromhex(value)
            except ValueError:
                raise Final(f"#{name}=... of the URL is no checksum") from None


def _of_headers(headers: Any) -> dict[str, bytes]:
    """What the server says of the content: of its headers those that speak of what it sends."""
    found: dict[str, bytes] = {}
    if headers.get("Content-Encoding", "identity") != "identity":
        return found
    told = {name.strip().lower(): value for name, value in _pairs(headers)}
    for name, ours in (("sha-512", "sha512"), ("sha-256", "sha256"), ("md5", "md5")):
        if name in told:
            with contextlib.suppress(ValueError):
                value = base64.b64decode(told[name].strip(" :"), validate=True)
                if len(value) == hashlib.new(ours).digest_size:
                    found[ours] = value
    return found


def _pairs(headers: Any) -> Iterator[tuple[str, str]]:
    if value := headers.get("Content-MD5", ""):
        yield "md5", value
    for header in ("Digest", "Repr-Digest", "Content-Digest"):
        for part in headers.get(header, "").split(","):
            name, equals, value = part.partition("=")
            if equals:
                yield name, value


def _request(url: str, method: str) -> urllib.request.Request:
    """Raises Final."""
    parts = urllib.parse.urlsplit(url)
    service, _, scheme = parts.scheme.rpartition("+")
    if scheme not in ("http", "https") or not parts.hostname:
        raise Final(f"this plug-in has {', '.join((*METHODS, *FEDERATED))}")
    request = urllib.request.Request(urllib.parse.urlunsplit(parts._replace(scheme=scheme, fragment="")), method=method)
    request.add_header("User-Agent", f"Roost-transfer/{VERSION}")
    request.add_header("Accept-Encoding", "identity")
    if parts.username is not None:
        words = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        request.add_header("Authorization", "Basic " + base64.b64encode(words.encode()).decode())
        host = parts.netloc.rpartition("@")[2]
        request.full_url = urllib.parse.urlunsplit(parts._replace(scheme=scheme, netloc=host, fragment=""))
    if service:
        if scheme != "https":
            raise Final(f"the token {service} is sent by https only")
        request.add_header("Authorization", f"Bearer {_token(service)}")
    return request


def _token(service: str) -> str:
    """The access token of `use_oauth_services`. Raises Final."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", service):
        raise Final(f"{service} is no name of a service")
    path = os.path.join(os.environ.get("_CONDOR_CREDS", ""), f"{service}.use")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read().strip()
    except (OSError, UnicodeDecodeError):
        raise Final(f"there is no credential {service}: the job needs use_oauth_services = {service}") from None
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return str(found["access_token"]) if isinstance(found, dict) and "access_token" in found else text


def _answer(request: urllib.request.Request) -> Any:
    """Raises Passing, Final."""
    try:
        return _opener.open(request, timeout=STALL_S)
    except urllib.error.HTTPError as error:
        with error:
            try:
                said = error.read(2 * SHOWN).decode("utf-8", "replace")
            except (OSError, http.client.HTTPException):
                said = ""
        plain = error.headers.get_content_type() == "text/plain" if error.headers else False
        code = re.search(r"<Code>([A-Za-z0-9]+)</Code>", said)  # as stores of objects have it
        more = f": {code[1]}" if code else f": {' '.join(said.split())[:SHOWN]}" if plain and said.strip() else ""
        message = f"the server answered {error.code} {error.reason}{more}"
        if error.code in PASSING:
            raise Passing(message, error.code, _after(error.headers)) from error
        raise Final(message, error.code) from error
    except urllib.error.URLError as error:
        reason = error.reason
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise Final(f"the server's certificate is not to be trusted: {reason.verify_message}") from error
        raise Passing(f"no connection: {reason}") from error
    except (TimeoutError, ConnectionError, http.client.HTTPException, ssl.SSLError) as error:
        raise Passing(f"no answer: {error or type(error).__name__}") from error
    except (ValueError, OSError) as error:
        raise Final(str(error)) from error


def _after(headers: Any) -> float:
    """Seconds of Retry-After."""
    value = (headers.get("Retry-After") or "") if headers else ""
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0


# ---------------------------------------------------------------- ads

_DEFINITION = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*;?', re.S)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def read_ads(text: str) -> Iterator[dict[str, str]]:
    """The texts of ads in new syntax, which is all that a list of transfers has. Raises ValueError."""
    at = 0
    while opened := re.compile(r"\s*\[").match(text, at):
        at, found = opened.end(), {}
        while definition := _DEFINITION.match(text, at):
            found[definition[1]] = re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[1]), definition[2], flags=re.S)
            at = definition.end()
        closed = re.compile(r"\s*\]").match(text, at)
        if closed is None:
            raise ValueError(f"the list of transfers is not as it should be: {text[at : at + 40]!r}")
        at = closed.end()
        yield found
    if text[at:].strip():
        raise ValueError(f"the list of transfers is not as it should be: {text[at : at + 40]!r}")


def ad_text(ad: dict[str, Any]) -> str:
    lines = []
    for name, value in ad.items():
        if isinstance(value, str):
            value = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
            text = f'"{value}"'
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value)
        lines.append(f"{name} = {text};")
    return "[ " + " ".join(lines) + " ]\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

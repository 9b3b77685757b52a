"""Signed URLs of stores of objects that speak S3 (AWS Signature Version 4, in the query). Pure.

Whoever has such a URL may do one thing with one object for an hour, without the keys that it was made with: these stay
at the access point. Written here rather than taken from the client library of the stores' maker, which is 20 MB with
its dependencies of which this is one page; tests compare the two.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

#: How long a signed URL may be used, seconds.
GOOD_FOR_S: Final = 3600
#: A clock may be ahead of the store's by so much, seconds.
SKEW_S: Final = 5
_AWS: Final = ".amazonaws.com"
_GOOGLE: Final = "storage.googleapis.com"


class BadObject(ValueError):
    """A URL that names no object: the text says why."""


@dataclass(frozen=True, slots=True)
class Keys:
    access: str
    secret: str
    region: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    host: str
    path: str  # encoded
    region: str


def signed(method: str, url: str, keys: Keys, now: float) -> str:
    """The https URL for this one request. url: `s3://bucket/key`, `s3://bucket.s3.region.amazonaws.com/key`,
    `s3://host[:port]/bucket/key` of another store, or `gs://bucket/key`. Raises BadObject."""
    place = _place(url, keys.region)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now - SKEW_S))
    scope = f"{stamp[:8]}/{place.region}/s3/aws4_request"
    query = {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{keys.access}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(GOOD_FOR_S),
        "X-Amz-SignedHeaders": "host",
    }
    if keys.session:
        query["X-Amz-Security-Token"] = keys.session
    words = "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in sorted(query.items()))
    request = "\n".join((method, place.path, words, f"host:{place.host}", "", "host", "UNSIGNED-PAYLOAD"))
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = _mac(key, part)
    return f"https://{place.host}{place.path}?{words}&X-Amz-Signature={_mac(key, text).hex()}"


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _place(url: str, region: str) -> _Place:
    scheme, _, rest = url.partition("://")
    where, slash, key = rest.partition("/")
    if not where or not slash or not key or "?" in url or "#" in url:
        raise BadObject(f"{url}: want s3://BUCKET/KEY, s3://HOST/BUCKET/KEY or gs://BUCKET/KEY")
    if scheme.lower() == "gs":
        where, key = _GOOGLE, f"{where}/{key}"
    host, colon, port = where.partition(":")
    if "." not in host and not colon:
        if host != host.lower() or "_" in host:  # no name of a host: an old bucket
            return _Place(f"s3{_AWS}", _encoded(f"{host}/{key}"), region or "us-east-1")
        return _Place(
            f"{host}.s3.{region}{_AWS}" if region else f"{host}.s3{_AWS}", _encoded(key), region or "us-east-1"
        )
    if host.endswith(_AWS):
        bucket, found, of_host = host.removesuffix(_AWS).rpartition(".s3.")
        if found and bucket:
            region = of_host
    return _Place(f"{host}{colon}{port}", _encoded(key), region or "us-east-1")


def _encoded(key: str) -> str:
    return "/" + quote(key, safe="/~")

"""Which files of a job go by URL, rather than between access point and execution point. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from shared.classad import ClassAd
from shared.transfer.sandbox import NOWHERE, STDERR, STDOUT, input_names, parse_remaps, remapped

#: The beginning of a URL; a token of `use_oauth_services` may stand before the scheme (`box+https://`).
URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
#: Schemes that the access point signs for (`shared.transfer.s3`).
SIGNED: Final = ("s3", "gs")


def is_url(name: str) -> bool:
    return URL.match(name) is not None


def scheme_of(url: str) -> str:
    """In lower case, without the name of a token: what a plug-in must have."""
    found = URL.match(url)
    return found[1].lower().rpartition("+")[2] if found else ""


def local_name(url: str) -> str:
    """The file that a URL becomes in the scratch directory: the last part of it, without a query. Empty: none."""
    name = unquote(posixpath.basename(re.split(r"[?#]", url, maxsplit=1)[0]))
    return "" if name in (".", "..") or "/" in name or "\0" in name else name


def input_urls(job: ClassAd) -> list[str]:
    return [name for name in input_names(job) if is_url(name)]


def goes_by_url(job: ClassAd) -> bool:
    """Whether anything of the job does: then its files travel, also where access point and execution point have the
    same file system."""
    return bool(input_urls(job) or job.eval_string("TransferPlugins") or job.eval_string("OutputDestination")) or any(
        is_url(target) for target in _targets(job).values()
    )


def output_url(job: ClassAd, name: str) -> str:
    """Where an output file goes; empty: to the access point. name: in the bundle for that."""
    target, rest = remapped(tuple(name.split("/")), _targets(job))
    if target is not None and is_url(target):
        return "/".join((target.rstrip("/"), *rest))
    destination, given = job.eval_string("OutputDestination"), {STDOUT: "Out", STDERR: "Err"}.get(name)
    shown = posixpath.basename(job.eval_string(given)) if given else name
    return f"{destination.rstrip('/')}/{shown}" if destination and target != NOWHERE else ""


def may_sign(job: ClassAd, method: str, url: str) -> bool:
    """Whether a run of this job may have this URL signed: what it gets are its own inputs and its checkpoints, what
    it puts lies where its output and its checkpoints belong."""
    if scheme_of(url) not in SIGNED or "?" in url or "#" in url:
        return False
    if method == "GET" and url in input_urls(job):
        return True
    return any(url == place or _below(url, place) for place in _places(job, method))


def destination_of(job: ClassAd) -> str:
    """The URL below which all checkpoints of a job lie, with a slash at its end; empty: the access point has them."""
    given = job.eval_string("CheckpointDestination")
    if not given:
        return ""
    return f"{given.rstrip('/')}/{job.eval_string('GlobalJobId').replace('#', '_')}/"


def _places(job: ClassAd, method: str) -> Iterator[str]:
    if destination := destination_of(job):
        yield destination
    if method == "PUT":
        if destination := job.eval_string("OutputDestination"):
            yield destination
        yield from (target for target in _targets(job).values() if is_url(target))


def _below(url: str, place: str) -> bool:
    rest = url.removeprefix(place.rstrip("/") + "/")
    return rest != url and not {"", ".", ".."} & {*unquote(rest).split("/")}


def _targets(job: ClassAd) -> dict[str, str]:
    remaps = parse_remaps(job.eval_string("TransferOutputRemaps"))
    for name, attribute in ((STDOUT, "Out"), (STDERR, "Err")):
        if (given := job.eval_string(attribute)) and (is_url(given) or given == NOWHERE):
            remaps[name] = given
    return remaps

"""File transfer plug-ins: HTCondor's protocol, which of them has a URL, and what their results mean. Pure.

A plug-in says with `-classad` what it can. One with MultipleFileSupport gets `-infile` and `-outfile` (and `-upload`):
ads with Url and LocalFileName, and back one for each with TransferSuccess and TransferError. Another gets the two names
of one file as its arguments: from where, and where to.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from services.startd.core.run.failures import Fault, RunFailed
from shared.classad import ClassAd, ParseError, parse_ads, unparse
from shared.transfer.sandbox import JobPlugin
from shared.transfer.urls import scheme_of

#: What the built-in plug-in is called where plug-ins are listed.
BUILTIN: Final = "built-in"
BUILTIN_SCHEMES: Final = ("file", "http", "https")
#: What it has where Pelican's client program is installed.
FEDERATED: Final = ("osdf", "pelican")
#: Of what a plug-in says for people, characters.
SHOWN: Final = 600


class BadPlugin(ValueError):
    """A plug-in that does not speak the protocol: the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """path: of the program; empty: the built-in one. several: it takes many files at a time. helper: path of another
    program that it runs."""

    path: str = ""
    schemes: tuple[str, ...] = BUILTIN_SCHEMES
    several: bool = True
    helper: str = ""

    def __str__(self) -> str:
        return self.path or f"the {BUILTIN} plug-in"


@dataclass(frozen=True, slots=True)
class Transfer:
    """url: with scheme and all. path: the whole path of the file at the execution point. asked: what the job calls it,
    where that is another URL than the one to be used. folders: those that a file is to lie in are
    made, where there are such at its URL."""

    url: str
    path: str
    asked: str = ""
    folders: bool = False


@dataclass(frozen=True, slots=True)
class Results:
    """How some transfers went. trouble: why not all did; empty: they did."""

    trouble: str = ""
    files: Mapping[str, int] = field(default_factory=dict)  # by scheme
    bytes: Mapping[str, int] = field(default_factory=dict)

    def plus(self, other: Results) -> Results:
        return Results(self.trouble or other.trouble, _sum(self.files, other.files), _sum(self.bytes, other.bytes))

    @property
    def size(self) -> int:
        return sum(self.bytes.values())


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def builtin(pelican: str) -> Plugin:
    """The built-in one. pelican: the path of that program; empty: it is not there."""
    return Plugin(schemes=(*BUILTIN_SCHEMES, *FEDERATED), helper=pelican) if pelican else Plugin()


def read_offer(path: str, said: str) -> Plugin:
    """What a plug-in answers to `-classad`. Raises BadPlugin."""
    try:
        ads = list(parse_ads(said, "new" if said.lstrip().startswith("[") else "old"))
    except ParseError as error:
        raise BadPlugin(f"its answer to -classad is no ad: {error}") from error
    ad = ads[0] if ads else ClassAd()
    kind, methods = ad.eval_string("PluginType"), ad.eval_string("SupportedMethods")
    if kind.lower() != "filetransfer" or not methods:
        raise BadPlugin('its answer to -classad lacks PluginType = "FileTransfer" or SupportedMethods')
    schemes = tuple(sorted({one.strip().lower() for one in methods.split(",")} - {""}))
    return Plugin(path, schemes, ad.eval("MultipleFileSupport") is True)


def by_scheme(plugins: Iterable[Plugin]) -> dict[str, Plugin]:
    """Which plug-in does what: of two that have a scheme the later one."""
    return {scheme: plugin for plugin in plugins for scheme in plugin.schemes}


def of_job(plugins: Mapping[str, Plugin], own: Iterable[JobPlugin], scratch: str) -> dict[str, Plugin]:
    """With those that come with the job, which go before the machine's."""
    found = dict(plugins)
    for one in own:
        plugin = Plugin(posixpath.join(scratch, one.name), one.schemes)
        found |= dict.fromkeys(one.schemes, plugin)
    return found


def share_out(transfers: Iterable[Transfer], plugins: Mapping[str, Plugin]) -> list[tuple[Plugin, list[Transfer]]]:
    """Each transfer to its plug-in, in the order of the first of each. Raises BadPlugin for a URL that none has."""
    shares: dict[Plugin, list[Transfer]] = {}
    for one in transfers:
        plugin = plugins.get(scheme_of(one.url))
        if plugin is None:
            raise BadPlugin(
                f"{one.asked or one.url}: no plug-in of this machine has {scheme_of(one.asked or one.url)}; it has "
                f"{', '.join(sorted(plugins)) or 'none'}"
            )
        shares.setdefault(plugin, []).append(one)
    return [
        (plugin, some)
        for plugin, listed in shares.items()
        for some in ([listed] if plugin.several else [[one] for one in listed])
    ]


def arguments(plugin: Plugin, transfers: Sequence[Transfer], infile: str, outfile: str, *, upload: bool) -> list[str]:
    if plugin.several:
        return ["-infile", infile, "-outfile", outfile, *(["-upload"] if upload else [])]
    (one,) = transfers
    return [one.path, one.url] if upload else [one.url, one.path]


def asked_ads(transfers: Iterable[Transfer]) -> str:
    """The text of the file behind -infile."""
    folders = {False: "", True: '; MakeDirectories = "true"'}
    return "".join(
        f"[ Url = {_text(one.url)}; LocalFileName = {_text(one.path)}{folders[one.folders]} ]\n" for one in transfers
    )


def _text(value: str) -> str:
    return unparse(ClassAd({"v": value}).find("v"))  # type: ignore[arg-type]


def results_of(plugin: Plugin, transfers: Sequence[Transfer], told: str, said: str, ended: str) -> Results:
    """What a plug-in did. told: the text of its -outfile. said: its stderr. ended: how it ended, where not well."""
    try:
        ads = list(parse_ads(told, "new" if told.lstrip().startswith("[") else "old"))
    except ParseError as error:
        ads, ended = [], ended or f"its results can not be read ({error})"
    failed = next((ad for ad in ads if ad.eval("TransferSuccess") is not True), None)
    done = [one for one, ad in zip(transfers, ads, strict=False) if ad.eval("TransferSuccess") is True]
    if not plugin.several and not ended:
        done = list(transfers)
    files: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for number, one in enumerate(done):
        scheme = scheme_of(one.asked or one.url)
        size = ads[number].eval("TransferFileBytes") if number < len(ads) else 0
        files[scheme] = files.get(scheme, 0) + 1
        sizes[scheme] = sizes.get(scheme, 0) + (size if isinstance(size, int) and size > 0 else 0)
    trouble = ""
    if ended or failed is not None or len(done) < len(transfers):
        what = (failed.eval_string("TransferError") if failed is not None else "") or _last_words(said)
        missing = transfers[len(done)] if len(done) < len(transfers) else transfers[-1]
        what = what or f"{missing.asked or missing.url}: {plugin} {ended or 'does not tell of it'}"
        trouble = what[:SHOWN]
    return Results(trouble, files, sizes)


def _last_words(said: str) -> str:
    return " ".join(said.split())[-SHOWN:]


def subcode_of(exit_code: int | None, *, timed_out: bool) -> int:
    """HoldReasonSubCode: the plug-in's exit status times 256, or that it took too long."""
    return errno.ETIME if timed_out else (exit_code or 0) << 8


def failure(what: str, subcode: int, *, upload: bool, slot: str) -> RunFailed:
    where = f"at the execution point {slot}"
    if upload:
        return Fault.URL_OUTPUT.failure(f"Transfer output files failure {where}: {what}", subcode)
    return Fault.URL_INPUT.failure(f"Transfer input files failure {where}: {what}", subcode)


def statistics(before: Any, bundle: tuple[int, int], results: Results) -> ClassAd:
    """TransferInputStats or TransferOutputStats: files and bytes by protocol, of the last run and of all. before: what
    the job says of runs before this one. bundle: files and bytes between access point and execution point."""
    found: dict[str, int] = {}
    files = {"Cedar": bundle[0]} | {name.capitalize(): count for name, count in results.files.items()}
    sizes = {"Cedar": bundle[1]} | {name.capitalize(): count for name, count in results.bytes.items()}
    if isinstance(before, ClassAd):
        for name in before:
            value = before.eval(name)
            if name.endswith("Total") and isinstance(value, int) and not isinstance(value, bool):
                found[name] = value
    for name in files:
        found[f"{name}FilesCountLastRun"] = files[name]
        found[f"{name}SizeBytesLastRun"] = sizes.get(name, 0)
        found[f"{name}FilesCountTotal"] = found.get(f"{name}FilesCountTotal", 0) + files[name]
        found[f"{name}SizeBytesTotal"] = found.get(f"{name}SizeBytesTotal", 0) + sizes.get(name, 0)
    return ClassAd(found)

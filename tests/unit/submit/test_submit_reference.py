"""Every recorded submit file gives the ads that condor_submit 23.9.6 gave, attribute by attribute."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from roost.submit import Description, SubmitContext
from roost.submit.dry_run import lines
from shared.config.errors import ConfigError

HERE = Path(__file__).parent / "reference"
ENVIRONMENT = {
    "HOME": "/root",
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "CONDOR_CONFIG": "/t/config",
    "TZ": "UTC",
}
#: Of the recording machine or of the moment.
PASSING = {"CondorVersion", "CondorPlatform", "QDate", "EnteredCurrentStatus", "ClusterId"}
#: Where Roost differs on purpose: docs/submit.md says why.
DEVIATIONS = {
    **dict.fromkeys(("if_34", "if_37", "if_43", "if_45", "if_48"), "more conditions are understood"),
    **dict.fromkeys(("fn_051", "fn_052"), "$Ff() leaves a relative path relative"),
    **dict.fromkeys(("minus", "lang_bad_name", "lang_heredoc_plus", "cli_set_plus"), "more spellings are understood"),
    **dict.fromkeys(("q_063", "q_096", "q_101", "q_150"), "corners of queue lists"),
    **dict.fromkeys(("request_disk_58", "request_memory_58"), "no overflow to a negative number"),
    **dict.fromkeys(("varf_choice", "varf_universe"), "an index beyond the list is an error"),
    **dict.fromkeys(("u_grid_cl", "u_grid_plain", "u_grid_rich"), "there is no grid universe"),
    **dict.fromkeys((f"n_max_{w}_{n}" for w in ("idle", "materialize") for n in range(15)), "jobs exist at once"),
    **dict.fromkeys((f"t_use_oauth_services_{n}" for n in (0, 1, 5, 7)), "no program is asked for the tokens"),
    "lang_max_one": "jobs exist at once",
    "lang_jobset": "there are no job sets",
    "lease_15": "true is no number of seconds",
    "plus_ids": "ClusterId is the queue's",
    "container_image_2": "an image of a registry is no input file",
}
PLACE = SubmitContext(
    directory=Path("/"), file="", user="root", environment=ENVIRONMENT, filesystem_domain="pool.example"
)
Ad = dict[str, str]


@dataclass(frozen=True)
class Case:
    name: str
    arguments: list[str]
    text: str
    refused: bool
    ads: list[Ad]


def minimal() -> Ad:
    return dict(line.split("=", 1) for line in (HERE / "minimal.ad").read_text().splitlines())


def cases(group: str) -> Iterator[Case]:
    with open(HERE / f"{group}.cases", newline="") as stream:
        content = stream.read()
    for block in ("\n" + content).split("\n==== ")[1:]:
        head, _, rest = block.partition("\n")
        text, _, answer = rest.rpartition("\n---- ")
        text = text.removesuffix("\\") if text.endswith("\\") else text + "\n"
        name, _, arguments = head.partition(" ")
        yield Case(name, words(arguments), text, answer.startswith("refused"), list(ads(answer.splitlines()[1:])))


def words(text: str) -> list[str]:
    found, decoder = [], json.JSONDecoder()
    while text := text.lstrip():
        word, end = decoder.raw_decode(text)
        found.append(word)
        text = text[end:]
    return found


def ads(answer: list[str]) -> Iterator[Ad]:
    ad, gone = {}, set()
    for line in answer:
        if line == ".":
            yield {name: value for name, value in {**minimal(), **ad}.items() if name not in gone}
            ad, gone = {}, set()
        elif line == ",":
            yield ad
            ad = {}
        elif line.startswith("-"):
            gone.add(line[1:])
        else:
            name, _, value = line.partition("=")
            ad[name] = value


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    base = tmp_path_factory.mktemp("submit")
    shutil.copytree(HERE / "files", base / "files")
    (base / "files" / "big.bin").write_bytes(b"\n" * 1_500_000)
    return base


def ours(case: Case, folder: Path) -> list[Ad] | None:
    """What Roost makes of it; None if it refuses."""
    settings: dict[str, list[str]] = {"prelude": [], "append": []}
    queue = None
    rest = iter(case.arguments)
    for word in rest:
        if word in ("-append", "-a"):
            settings["append"].append(next(rest))
        elif word == "-batch-name":
            settings["append"].append(f"batch_name = {next(rest)}")
        elif word == "-queue":
            queue = " ".join(rest)
        else:
            settings["prelude"].append(word)
    place = replace(PLACE, directory=folder / "files", file=f"../{case.name}.sub")
    description = Description(case.text, place, queue_override=queue, now=1.0, **settings)
    try:
        text = "\n".join(
            line for number, cluster in enumerate(description.clusters(), 1) for line in lines(cluster, number, 1.0)
        )
    except ConfigError:
        return None
    found: list[Ad] = []
    ad: Ad = {}
    for line in text.replace(str(folder), "$DIR").split("\n"):
        name, equals, value = line.partition("=")
        if line == ".":
            found.append(ad)
            ad = {}
        elif equals and name not in PASSING:
            ad[name] = value.strip()
    return found


def difference(case: Case, folder: Path) -> str:
    got = ours(case, folder)
    if (got is None) != case.refused:
        return f"{case.name}: {'refused' if got is None else 'accepted'}, other than the reference\n{case.text}"
    if got is None or got == case.ads:
        return ""
    told = [f"{case.name}: {len(got)} jobs, not {len(case.ads)}"] if len(got) != len(case.ads) else []
    for proc, (mine, theirs) in enumerate(zip(got, case.ads, strict=False)):
        for name in sorted(mine.keys() | theirs.keys()):
            if mine.get(name) != theirs.get(name):
                told.append(f"{case.name}, job {proc}: {name} = {mine.get(name)}, the reference: {theirs.get(name)}")
    return "\n".join(told)


@pytest.mark.parametrize("group", sorted(path.stem for path in HERE.glob("*.cases")))
def test_recorded_submit_files_give_the_references_ads(group: str, folder: Path, monkeypatch) -> None:
    monkeypatch.chdir(folder / "files")
    found = [difference(case, folder) for case in cases(group) if case.name not in DEVIATIONS]
    assert found
    assert not [text for text in found if text]


def test_each_deviation_is_of_a_recorded_case() -> None:
    recorded = {case.name for path in HERE.glob("*.cases") for case in cases(path.stem)}
    missing = {name for name in DEVIATIONS if name not in recorded and not name.startswith(("n_max_", "t_java"))}
    assert not missing

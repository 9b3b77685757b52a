"""Every door is described whole, and in the table of authorization."""

import re
from pathlib import Path

import pytest

from services.gateway.app import guarded
from shared.operations import NEEDS
from tests.unit.gateway.app import application

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def document():
    return application().openapi()


@pytest.fixture(scope="module")
def doors(document):
    return [
        (f"{method.upper()} {path}", door)
        for path, methods in document["paths"].items()
        for method, door in methods.items()
    ]


def test_there_are_doors(doors):
    assert len(doors) > 40


def test_every_door_asks_for_an_operation_of_the_table():
    unguarded = [f"{route.methods} {route.path}" for route, operation in guarded(application()) if not operation]
    assert unguarded == []
    assert {operation for _, operation in guarded(application())} <= set(NEEDS)


def test_every_operation_of_the_table_opens_a_door():
    assert {operation for _, operation in guarded(application())} == set(NEEDS)


def test_every_door_tells_what_it_does(doors):
    silent = [name for name, door in doors if not door.get("summary") or len(door.get("description", "")) < 20]
    assert silent == []


def test_every_parameter_is_described(doors):
    silent = [
        f"{name}: {parameter['name']}"
        for name, door in doors
        for parameter in door.get("parameters", ())
        if not (parameter.get("description") or parameter["schema"].get("description"))
        and parameter["name"] not in ("type", "limit")  # they say themselves what they are
    ]
    assert silent == []


def test_every_answer_has_an_example_or_a_form(doors):
    silent = []
    for name, door in doors:
        content = door["responses"]["200"].get("content", {})
        told = any(
            "example" in one or set(one.get("schema", {})) - {"title", "additionalProperties", "type"}
            for one in content.values()
        )
        if not told and not (name.startswith("PUT") and not content):
            silent.append(name)
    assert [name for name in silent if name != "PUT /v1/jobs/{job_id}/files"] == []


def test_every_door_tells_its_errors_level_and_how_to_send_a_token(doors):
    for name, door in doors:
        assert {"400", "401", "403", "404", "429", "503"} <= set(door["responses"]), name
        assert "422" not in door["responses"], name
        assert door["security"] == [{"token": []}], name
        assert (door["x-roost-level"] == "NONE") == (name == "POST /v1/enroll"), name  # which looks at a join token
        assert NEEDS[door["x-roost-operation"]].name == door["x-roost-level"], name


def test_whatever_changes_something_takes_more_than_read(doors):
    """A door that changes something is none of READ's. A token that is fetched changes nothing: it is signed, not kept,
    and opens no more than what asked for it."""
    weak = [name for name, door in doors if not name.startswith("GET") and door["x-roost-level"] == "READ"]
    assert weak == ["POST /v1/tokens/fetch"]


def test_the_page_has_the_table_of_operations():
    """docs/api.md has a row for each operation, with its level."""
    page = (DOCS / "api.md").read_text()
    table = dict(re.findall(r"^\| `([a-z.-]+)` \| (NONE|READ|WRITE|ADMINISTRATOR) \|", page, flags=re.MULTILINE))
    assert table == {operation: level.name for operation, level in NEEDS.items()}


def test_the_pages_name_every_door(doors):
    of_doors = ("api.md", "journal.md", "dashboard.md", "pool-history.md")
    pages = "".join((DOCS / page).read_text() for page in of_doors if (DOCS / page).exists())
    paths = {name: name.partition(" ")[2] for name, _ in doors}
    assert [
        name for name, path in paths.items() if not {path, path.replace("{submitter}", "USER")} & _named(pages)
    ] == []


def _named(pages):
    """Paths that stand in pages, without what is asked of them."""
    return {path.partition("?")[0] for path in re.findall(r"/v1/[^\s`,\"'|)]*", pages)}

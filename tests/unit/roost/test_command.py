"""The command line's own language, and errors that name the mend."""

import json

import pytest

from roost.cli.events import line
from roost.cli.main import COMMANDS, main
from roost.cli.options import flag, many, parse, value
from roost.errors import UsageError
from roost.locate import locate, locate_gateway
from roost.protocol import Event

OPTIONS = (
    flag("long", "l", help=""),
    flag("limits", help=""),
    value("constraint", help="", metavar="EXPR"),
    many("af", "autoformat", help="", letters=True),
    flag("help", "h", help=""),
)


@pytest.mark.parametrize(
    ("typed", "arguments", "values", "letters"),
    [
        ("", [], {}, {}),
        ("12 bob", ["12", "bob"], {}, {}),
        ("-l", [], {"long": []}, {}),
        ("-LONG", [], {"long": []}, {}),
        ("--long", [], {"long": []}, {}),
        ("-lo", [], {"long": []}, {}),
        ("-const x", [], {"constraint": ["x"]}, {}),
        ("--constraint=x=1", [], {"constraint": ["x=1"]}, {}),
        ("-constraint -x", [], {"constraint": ["-x"]}, {}),
        ("-constraint a -constraint b", [], {"constraint": ["a", "b"]}, {}),
        ("-af A B -l C", ["C"], {"af": ["A", "B"], "long": []}, {}),
        ("-af:hj A", [], {"af": ["A"]}, {"af": "hj"}),
        ("-autof:h A", [], {"af": ["A"]}, {"af": "h"}),
        ("-- -l", ["-l"], {}, {}),
        ("-5 -1.5 -", ["-5", "-1.5", "-"], {}, {}),
    ],
)
def test_words_are_read_as_htcondors_users_type_them(typed, arguments, values, letters):
    parsed = parse(typed.split(), OPTIONS)
    assert (parsed.arguments, parsed.values, parsed.letters) == (arguments, values, letters)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("-constrain", "wants a value: -constrain EXPR"),
        ("-li", None),
        ("-af", "wants at least one value"),
        ("-af -l", "wants at least one value"),
        ("-long:h", "takes nothing after a colon"),
        ("--long=1", "takes no value"),
        ("-lnog", "did you mean -long"),
        ("-zzz", "see -help"),
    ],
)
def test_mistyped_options_are_told_with_the_mend(typed, says):
    if says is None:
        assert parse(typed.split(), OPTIONS).has("limits")
        return
    with pytest.raises(UsageError, match=says):
        parse(typed.split(), OPTIONS)


def test_a_beginning_of_two_options_is_refused_with_both():
    with pytest.raises(UsageError, match="-alpha, -alps"):
        parse(["-al"], (flag("alpha", help=""), flag("alps", help="")))


@pytest.fixture
def _no_pool(tmp_path, monkeypatch):
    for name in ("ROOST_URL", "ROOST_TOKEN", "ROOST_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROOST_POOL_DIR", str(tmp_path / "none"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    if command == "version":
        assert main([command]) == 0
        return
    assert main([command, "-help"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"usage: roost {command}")
    assert f"  {command} " in _overview(capsys)


def _overview(capsys) -> str:
    assert main(["help"]) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures("_no_pool")
@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"version", "demo"}))
def test_every_command_refuses_unknown_options(command, capsys):
    assert main([command, "-no-such-option"]) == 1
    told = capsys.readouterr()
    assert "no-such-option" in told.err
    assert told.err.startswith("roost: ")


@pytest.mark.usefixtures("_no_pool")
@pytest.mark.parametrize(
    "typed",
    ["q", "status", "history", "userprio", "events", "dead-letters", "token list", "rm 1", "hold 1", "wait 1", "down"],
)
def test_without_a_pool_every_command_says_how_to_get_one(typed, capsys):
    assert main(typed.split()) == 1
    assert "pool" in capsys.readouterr().err


@pytest.mark.usefixtures("_no_pool")
def test_scripts_that_asked_for_json_get_errors_in_json(capsys):
    assert main(["q", "-json"]) == 1
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["code"] == "no-pool"
    assert error["retryable"] is False
    assert "roost up" in error["message"]


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("sbumit x", "did you mean `roost submit`"),
        ("frobnicate", "see `roost help`"),
        ("rm", "name jobs"),
        ("rm 1 -all", "not both"),
        ("rm 1 bob", "not both"),
        ("wait", "name jobs"),
        ("wait 1 -timeout soon", "wants seconds"),
        ("token create", "token create USER"),
        ("token frob", "token create USER"),
        ("userprio -setfactor x", "wants a user and a number"),
        ("userprio -setfactor x much", "is not a number"),
        ("userprio -setfactor x nan", "is not a number"),
        ("userprio -delete", "wants at least one value"),
        ("userprio -delete a b", "wants one user"),
        ("config-val", "roost config-val NAME"),
    ],
)
def test_mistakes_are_told_before_anybody_is_asked(typed, says, capsys, monkeypatch):
    monkeypatch.setenv("ROOST_URL", "127.0.0.1:9")
    monkeypatch.setenv("ROOST_TOKEN", "x")
    assert main(typed.split()) == 1
    assert says in capsys.readouterr().err


def test_where_the_pool_is(tmp_path, monkeypatch):
    for name in ("ROOST_URL", "ROOST_TOKEN", "ROOST_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROOST_POOL_DIR", str(tmp_path))
    (tmp_path / "pool.json").write_text('{"url": "http://127.0.0.1:1234"}')
    (tmp_path / "token").write_text("secret\n")
    assert (locate().url, locate().token) == ("http://127.0.0.1:1234", "secret")
    assert locate("host").url == "http://host:9680"
    assert locate("host:1").url == "http://host:1"
    assert locate("https://host/roost/").url == "https://host/roost"
    monkeypatch.setenv("ROOST_URL", "elsewhere:5")
    monkeypatch.setenv("ROOST_TOKEN", "other")
    assert (locate().url, locate().token) == ("http://elsewhere:5", "other")
    assert locate("here:1", "mine").token == "mine"
    # Who says they have no token gets none, whatever the environment and files have.
    assert (locate(token="").url, locate(token="").token) == ("http://elsewhere:5", "")
    assert (locate_gateway("here:1", "").token, locate_gateway(None, "").token) == ("", "")


def test_events_are_told_in_a_line_that_a_person_can_read():
    body = {
        "at": 1795363872.91,
        "sender": "schedd.ap",
        "schedd": "ap",
        "waited_s": 0.0351,
        "held": [],
        "reason": "two\nlines " + "long " * 20,
        "kinds": [{"autocluster": 3, "jobs": [[2, 0, 4]], "ad": "j6lDbHVzdGVySWQC" * 80}],
    }
    text = line(Event(id="7", type="job.sorted", body=body))
    assert text[8:].startswith(".910 job.sorted         schedd=ap waited_s=0.035 reason=two lines long long")
    assert text.endswith("kinds=[{autocluster=3, jobs=[[2, 0, 4]], ad=j6lDbHVzdGVySWQCj6lDbHVzdGV...}]")

"""What a support bundle leaves out: every shape in which a secret may stand in a text or in data."""

import pytest

from roost.support_bundle import Scrubber, newest, secrets_here, tail
from shared.config import load_config
from shared.daemon.config_query import HIDDEN

SECRET = "planted-3f9a17c2"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    "text",
    [
        f"amqp://startd.n1:{SECRET}@broker/pool",
        f"redis://:{SECRET}@cm:6379/0",
        f"https://s3.example.org/x?password={SECRET}&y=1",
        f"Authorization: Bearer {SECRET}",
        f'{{"password": "{SECRET}", "x": 1}}',
        f"POOL_PASSWORD = {SECRET}",
        f"api_key: {SECRET}",
        f'{{"claim_id": "<10.0.0.1:9618>#1700000000#4#{SECRET}"}}',
        f"claim <10.0.0.1:9618>#1700000000#4#{SECRET} is over",
        f"-----BEGIN EC PRIVATE KEY-----\nMHc{SECRET}\nabc\n-----END EC PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\nMHc{SECRET} and the text broke off",
    ],
)
def test_secrets_are_known_by_their_shape(text):
    said = Scrubber().text(text)
    assert SECRET not in said
    assert HIDDEN in said


def test_a_web_token_is_left_out_wherever_it_stands():
    assert JWT not in Scrubber().text(f"the token {JWT} was sent")


def test_what_is_known_to_be_a_secret_is_left_out_without_any_shape():
    assert SECRET not in Scrubber([SECRET, "short"]).text(f"it says {SECRET}.")
    assert Scrubber(["short"]).text("a short text") == "a short text"


def test_data_loses_values_of_secret_names_and_keeps_the_rest():
    data = {"SEC_PASSWORD": SECRET, "list": [{"text": f"x?token={SECRET}"}], "MEMORY": 4096, "TOKEN_FILE": "/etc/token"}
    found = Scrubber().data(data)
    assert SECRET not in str(found)
    assert found["MEMORY"] == 4096
    assert found["TOKEN_FILE"] == "/etc/token"


def test_ordinary_lines_stay_as_they_are():
    line = '{"event": "job_started", "job": "12.0", "slot": "slot1@node1", "tokens": 4}'
    assert Scrubber().text(line) == line


def test_secrets_of_this_machine_are_found(tmp_path, monkeypatch):
    monkeypatch.setenv("ROOST_POOL_DIR", str(tmp_path))
    monkeypatch.setenv("ROOST_TOKEN", "token-of-the-environment")
    (tmp_path / "token").write_text("token-in-a-file\n")
    (tmp_path / "passwords.d").mkdir()
    (tmp_path / "passwords.d" / "POOL").write_text("password-in-a-directory\n")
    config = load_config(
        [], subsystem="TOOL", env={"_CONDOR_MY_SECRET": "secret-of-a-knob", "_CONDOR_X": "amqp://u:in-an-address@h/"}
    )
    found = set(secrets_here(config))
    assert {
        "token-of-the-environment",
        "token-in-a-file",
        "password-in-a-directory",
        "secret-of-a-knob",
        "in-an-address",
    } <= found


def test_of_a_log_the_end_is_kept_from_the_beginning_of_a_line(tmp_path):
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    said = tail(log, 100)
    assert len(said) <= 100
    assert said.startswith("line ")
    assert said.endswith("line 999\n")
    assert tail(log, 1 << 20) == log.read_text()


def test_logs_that_were_written_last_come_first_and_links_are_none(tmp_path):
    import os

    for number, name in enumerate(("old", "new")):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (1000 + number, 1000 + number))
    (tmp_path / "link").symlink_to("/etc/shadow")
    (tmp_path / "folder").mkdir()
    assert [one.name for one in newest(tmp_path, 5)] == ["new", "old"]
    assert newest(tmp_path / "none", 5) == []

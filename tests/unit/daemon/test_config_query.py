"""What a daemon tells of its configuration, and what it keeps to itself."""

import pytest

from shared.config import load_config
from shared.daemon.config_query import HIDDEN, describe_config
from shared.messages.orders import AskConfig


def config(**macros):
    return load_config([], subsystem="SCHEDD", env={}, overrides=macros)


def values(made, *names, pattern=""):
    return {
        one["name"]: one["value"] for one in describe_config(made, AskConfig(names=list(names), pattern=pattern)).macros
    }


def test_values_come_with_where_they_stand():
    (one,) = describe_config(config(MAX_JOBS_RUNNING="7 * 2"), AskConfig(names=["max_jobs_running"])).macros
    assert (one["name"], one["value"], one["file"]) == ("MAX_JOBS_RUNNING", "7 * 2", "<command line>")
    assert one["default"]


def test_a_name_that_is_not_defined_is_null():
    assert values(config(), "NO_SUCH_MACRO") == {"NO_SUCH_MACRO": None}


def test_a_pattern_finds_what_is_set():
    made = config(MY_ONE="1", MY_TWO="2", OTHER="3")
    assert values(made, pattern="my_*") == {"MY_ONE": "1", "MY_TWO": "2"}
    assert {"MY_ONE", "MY_TWO", "OTHER"} <= set(values(made))
    assert values(made, pattern="m*y_*" * 30 + "x") == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("SLACK_PASSWORD", "hunter22"),
        ("MY_SECRET", "hunter22"),
        ("GITHUB_TOKEN", "hunter22"),
        ("S3_API_KEY", "hunter22"),
        ("ROOST_REDIS_URL", "redis://schedd:hunter22@redis:6379/0"),
        ("ROOST_AMQP_URL", "amqp://a:hunter22@one:5672/,amqp://a:hunter22@two:5672/"),
        ("ROOST_REDIS_URL", "redis+sentinel://a:b@s/roost/0?sentinel_user=x&sentinel_password=hunter22"),
    ],
)
def test_secrets_are_not_told(name, text):
    made = config(**{name: text, "COPY": f"see $({name})"})
    for asked in (AskConfig(names=[name, "COPY"]), AskConfig(), AskConfig(pattern="*")):
        answer = describe_config(made, asked)
        assert "hunter22" not in str(answer)
        assert HIDDEN in str(answer)


def test_a_file_with_a_secret_is_no_secret_by_its_name():
    assert values(config(ROOST_TOKEN_FILE="/var/lib/token"), "ROOST_TOKEN_FILE") == {
        "ROOST_TOKEN_FILE": "/var/lib/token"
    }


def test_what_can_not_be_expanded_says_why():
    (one,) = describe_config(config(LOOP="$(LOOP)x"), AskConfig(names=["LOOP"])).macros
    assert one["value"] is not None or one["error"]

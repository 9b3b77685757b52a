"""prepare's files as Secrets of Kubernetes."""

import base64
from pathlib import Path

import pytest

from tests.compose_set_up import load_for_kubernetes
from tests.kubernetes_api import TOKEN, KubernetesApi

NAMESPACE, PREFIX = "jobs", "pool-"
#: As the chart sets it.
ENVIRONMENT = {
    "ROOST_HOST_PREFIX": PREFIX,
    "ROOST_DAEMONS": "collector=1 negotiator=2 schedd=1 gateway=1 startd=0",
    "ROOST_AMQP_URLS": "amqp://{user}:{password}@pool-rabbitmq-0.pool-rabbitmq:5672/",
    "ROOST_REDIS_URLS": "redis://{user}:{password}@pool-redis:6379/0",
    "ROOST_BROKER_API": "http://{user}:{password}@pool-rabbitmq-0.pool-rabbitmq:15672",
}


@pytest.fixture
def server():
    with KubernetesApi(NAMESPACE) as api:
        yield api


def run(directory: Path, monkeypatch, server: KubernetesApi, **environment: str):
    """One run in a pod of its own; returns what it wrote."""
    directory.mkdir()
    module = load_for_kubernetes(directory, monkeypatch, **(ENVIRONMENT | environment))
    monkeypatch.setattr(module.Api._ask.retry, "sleep", lambda _: None)
    api = module.Api(f"http://127.0.0.1:{server.port}", NAMESPACE, TOKEN, labels={"a": "b"})
    return module.run(api, PREFIX)


def data(server: KubernetesApi, but: str = "pool-rabbitmq") -> dict[str, dict[str, str]]:
    """All but the broker's users, whose hashes have fresh salt."""
    return {name: one["data"] for name, one in server.secrets.items() if name != but}


def test_what_is_there_is_kept(tmp_path, monkeypatch, server):
    first = run(tmp_path / "first", monkeypatch, server)
    assert {"pool-collector", "pool-negotiator2", "pool-had2", "pool-join", "pool-authority", "pool-redis"} <= set(
        first
    )
    assert "pool-startd1" not in first
    before = data(server)
    assert run(tmp_path / "second", monkeypatch, server) == ["pool-rabbitmq"]
    assert data(server) == before
    assert not [name for one in before.values() for name in one if name.endswith((".new", "lock"))]
    assert all(one["type"] == "Opaque" and one["metadata"]["labels"] == {"a": "b"} for one in server.secrets.values())


def test_one_more_daemon_changes_nothing_of_the_others(tmp_path, monkeypatch, server):
    run(tmp_path / "first", monkeypatch, server)
    before = data(server)
    more = ENVIRONMENT["ROOST_DAEMONS"].replace("schedd=1", "schedd=2")
    written = run(tmp_path / "second", monkeypatch, server, ROOST_DAEMONS=more)
    assert sorted(written) == ["pool-authority", "pool-rabbitmq", "pool-schedd2"]
    assert {name: one for name, one in data(server).items() if name in before and name != "pool-authority"} == {
        name: one for name, one in before.items() if name != "pool-authority"
    }
    user = base64.b64decode(server.secrets["pool-schedd2"]["data"]["amqp_url"]).decode()
    assert user.startswith("amqp://schedd.schedd2:")
    assert user.endswith("@pool-rabbitmq-0.pool-rabbitmq:5672/")


def test_files_in_directories_have_keys_that_kubernetes_takes(tmp_path, monkeypatch, server):
    run(tmp_path / "first", monkeypatch, server)
    keys = set(server.secrets["pool-collector"]["data"])
    assert keys == {"amqp_url", "redis_url", "config", "ca.pem", "gateways..gateway.pub"}


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(tmp_path, monkeypatch, server, status):
    server.refuse = [status, status]
    assert run(tmp_path / "first", monkeypatch, server)
    assert server.asked[:3] == ["GET pool-authority"] * 3


def test_who_may_not_is_told_and_nothing_is_written(tmp_path, monkeypatch, server):
    server.refuse = [403]
    with pytest.raises(OSError, match="403"):
        run(tmp_path / "first", monkeypatch, server)
    assert server.secrets == {}


def test_a_change_of_somebody_else_is_not_overwritten(tmp_path, monkeypatch, server):
    run(tmp_path / "first", monkeypatch, server)
    answer = server.answer

    def changed_meanwhile(method, name, body):
        if method == "PUT":
            server.secrets[name]["metadata"]["resourceVersion"] = "9999"
        return answer(method, name, body)

    monkeypatch.setattr(server, "answer", changed_meanwhile)
    with pytest.raises(OSError, match="409"):
        run(tmp_path / "second", monkeypatch, server)


@pytest.mark.parametrize("key", ["/etc/passwd", "../up", "..up", "a..", "", "a/b"])
def test_a_key_that_is_no_file_is_refused(tmp_path, monkeypatch, key):
    module = load_for_kubernetes(tmp_path, monkeypatch, **ENVIRONMENT)
    with pytest.raises(ValueError):
        module.path_of(key)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ROOST_DAEMONS", "schedd=0", "want ROLE=NUMBER"),
        ("ROOST_DAEMONS", "scheds=1", "want ROLE=NUMBER"),
        ("ROOST_AMQP_URLS", "amqp://elsewhere:5672/", "in each URL"),
        ("ROOST_AMQP_URLS", "amqp://{user}:{password}@a:5672/,amqp://b:5672/", "in each URL"),
        ("ROOST_REDIS_URLS", "elsewhere", "in each URL"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, monkeypatch, server, name, value, said):
    with pytest.raises(SystemExit, match=said):
        run(tmp_path / "first", monkeypatch, server, **{name: value})
    assert server.secrets == {}

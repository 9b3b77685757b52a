"""`roost config-val -set`, `-unset`, `-rset` and `-runset` against a pool, and the same over HTTP: CFG-16, TLS-10."""

import asyncio

import pytest

from roost.aio import AsyncClient
from roost.cli import config_val, daemon_commands, daemons, output
from roost.cli.main import main
from roost.errors import ClientError
from tests.integration.inside import InsidePool

CONFIG = """
ENABLE_RUNTIME_CONFIG = true
ENABLE_PERSISTENT_CONFIG = true
PERSISTENT_CONFIG_DIR = {directory}/set
SETTABLE_ATTRS_ADMINISTRATOR = MAX_JOBS_RUNNING, START, MY_*, GROUP_*, SCHEDD_DEBUG
SETTABLE_ATTRS_WRITE = MY_LIST
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runtime") / "pool"
    directory.mkdir()
    (directory / "config").write_text(CONFIG.format(directory=directory))
    made = InsidePool(directory)
    yield made
    made.close()


@pytest.fixture
def roost(pool, monkeypatch, capsys):
    """The command in this process: what it said, standard error where it fails."""
    for name in ("ROOST_URL", "ROOST_TOKEN", "ROOST_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROOST_POOL_DIR", str(pool.directory))
    said: list[str] = []  # not what the pool in this process logs to standard output meanwhile
    for module in (output, config_val, daemons, daemon_commands):
        monkeypatch.setattr(module, "say", lambda text="": said.append(text + "\n"))

    def run(*words, fails=False):
        said.clear()
        assert main([*words]) == int(fails), capsys.readouterr().err
        error = capsys.readouterr().err
        return error if fails else "".join(said)

    return run


def of_schedd(pool):
    return pool.runner("schedd").daemon.settings.max_jobs_running


def test_a_macro_is_set_until_the_restart(pool, roost):
    usual = of_schedd(pool)
    name = pool.runner("schedd").daemon.context.name
    answered = roost("config-val", "-rset", "-schedd", "MAX_JOBS_RUNNING = $(MY_MOST) * 2", "MY_MOST = 21")
    assert answered == (
        f"schedd {name}: MAX_JOBS_RUNNING, MY_MOST set until it restarts; it takes effect with `roost reconfig`\n"
    )
    assert of_schedd(pool) == usual
    assert "in force: MAX_JOBS_RUNNING, MY_MOST" in roost("reconfig", "-schedd", name)
    assert of_schedd(pool) == 42
    shown = roost("config-val", "-schedd", "-verbose", "MAX_JOBS_RUNNING")
    assert " # at: <set until restart>" in shown
    assert "raw: MAX_JOBS_RUNNING = $(MY_MOST) * 2" in shown
    roost("config-val", "-runset", "-schedd", "MAX_JOBS_RUNNING", "MY_MOST")
    roost("reconfig", "-schedd", name)
    assert of_schedd(pool) == usual


def test_what_is_set_for_good_outlives_the_daemon(pool, roost):
    """And `config-val -verbose` names its file."""
    usual = of_schedd(pool)
    roost("config-val", "-set", "-schedd", "MAX_JOBS_RUNNING = 17")
    pool.stop_daemon("schedd")
    pool.start_daemon("schedd")
    assert of_schedd(pool) == 17
    file = pool.directory / "set" / ".config.SCHEDD"
    assert f" # at: {file}, line 3" in roost("config-val", "-schedd", "-verbose", "MAX_JOBS_RUNNING")
    # Somebody breaks the file: the daemon starts, and unsetting mends it.
    file.write_text(file.read_text().replace("17", "soon"))
    pool.stop_daemon("schedd")
    pool.start_daemon("schedd")
    assert of_schedd(pool) == usual
    assert "unset" in roost("config-val", "-unset", "-schedd", "MAX_JOBS_RUNNING")
    assert "MAX_JOBS_RUNNING" not in file.read_text()


def test_all_daemons_do_it_or_say_why_not(pool, roost):
    daemons = len(pool.pool.runners)
    answered = roost("config-val", "-rset", "-all", "MY_OWN = 1")
    assert answered.startswith(f"{daemons} daemons (")
    assert answered.count("MY_OWN set until it restarts") == 1
    answered = roost("config-val", "-rset", "-all", "SCHEDD.MAX_JOBS_RUNNING = 5", fails=True)
    assert answered.count("SCHEDD.MAX_JOBS_RUNNING is read by a schedd only") == len(pool.pool.runners) - 1
    roost("config-val", "-runset", "-schedd", "SCHEDD.MAX_JOBS_RUNNING")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-set", "-schedd", "MAX_JOBS_RUNNING = many"], "MAX_JOBS_RUNNING = many is not usable (give a number"),
        (["-set", "-schedd", "SPOOL = /tmp"], "SPOOL is not among what ADMINISTRATOR may set"),
        (["-set", "-schedd", "SETTABLE_ATTRS_WRITE = *"], "can be set in files only"),
        (["-set", "-name", "nowhere", "MY_X = 1"], "there is no daemon nowhere"),
        (["-set", "MY_X = 1"], "whose? -set wants -name NAME, a kind such as -negotiator, or -all"),
        (["-set", "-schedd"], "-set wants 'NAME = VALUE'"),
        (["-set", "-schedd", "MY_X", "=", "1"], "write 'NAME = VALUE', with quotes"),
        (["-set", "-rset", "-schedd", "MY_X = 1"], "-set and -rset do not go together"),
        (["-set", "-schedd", "-dump", "MY_X = 1"], "-dump does not go together with -set"),
        (["-unset", "-all", "-name", "x", "MY_X"], "leave -name out"),
        (["-set", "-schedd", "MY_X = 1", "MY_X = 2"], "named twice"),
        (["-all", "MY_X"], "-all goes with -set"),
    ],
)
def test_mistakes_are_named_and_change_nothing(pool, roost, words, says):
    assert says in roost("config-val", *words, fails=True)
    assert pool.runner("schedd").daemon.context.config.get("MY_X") is None


def test_who_may_set_what_over_http_and_who_did(pool):
    with pool.client() as client:
        writer = client.create_token("wendy@x", "WRITE")
        client.set_config(
            {"MY_API_TOKEN": "hidden-from-logs", "MY_LIST": "x"}, subsystems=["COLLECTOR"], everybody=True
        )
    body = {"subsystems": ["COLLECTOR"], "all": True, "set": {"MY_LIST": "b"}}
    status, _, answers = pool.ask("POST", "/v1/config", body=body, token=writer)
    assert (status, [answer["done"] for answer in answers]) == (200, [True])
    body["set"] = {"MY_OTHER": "b"}
    _, _, answers = pool.ask("POST", "/v1/config", body=body, token=writer)
    assert not answers[0]["done"]
    assert "MY_OTHER is not among what WRITE may set: list it in SETTABLE_ATTRS_WRITE" in answers[0]["said"]
    records = pool.ask("GET", "/v1/audit?operation=config.set&limit=5")[2]
    assert "hidden-from-logs" not in str(records)
    assert {"MY_LIST": "b"} in [record["what"].get("set") for record in records["records"]]


def test_an_asynchronous_client_sets_the_same(pool):
    async def set_both():
        async with AsyncClient(pool.url, pool.token) as client:
            answered = await client.set_config(
                {"MY_ASYNC": "1"}, subsystems=["COLLECTOR"], everybody=True, persistent=True
            )
            gone = await client.set_config({}, unset=["MY_ASYNC"], daemons=[answered[0]["name"]], persistent=True)
            for change in (client.set_quota("nowhere", dynamic=0.5), client.unset_quota("nowhere")):
                with pytest.raises(ClientError, match="there is no accounting group 'nowhere'"):
                    await change
            return answered, gone

    answered, gone = asyncio.run(set_both())
    assert [answer["done"] for answer in answered] == [True]
    assert any("MY_ASYNC unset" in answer["said"] for answer in gone)

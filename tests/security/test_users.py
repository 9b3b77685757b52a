"""Users are name@domain in every comparison: who has a famous name in another domain is a stranger."""

import getpass

import pytest

from engine.queue.jobs import BadSubmit
from services.gateway.core.authorization import Identity
from services.gateway.routes.jobs import owner_for
from services.schedd.core.acceptance import owner_of
from services.schedd.core.rights import may_act
from services.schedd.settings import Settings
from services.startd.core.isolation import Login, choose_account
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd
from shared.config import load_config
from shared.messages.queue import FetchFiles
from shared.messages.visits import VisitJob, Wish
from shared.operations import Level
from shared.users import local_name, same, whole
from tests.scheddpool import USER, Pool, job_ad
from tests.spec import spec
from tests.unit.startd.test_isolation import rules

ME = getpass.getuser()


def test_names_and_domains():
    assert whole("alice", "pool") == "alice@pool"
    assert whole("alice@x", "pool") == "alice@x"
    assert same("alice@pool", "alice@POOL")
    for other in ("alice", "alice@", "@pool", "Alice@pool", "alice@pool.example", "alice@pool@pool", ""):
        assert not same("alice@pool", other)
        assert not same(other, other) or "@pool" in other[1:]
    assert local_name("alice@Pool", "pool") == "alice"
    assert local_name("alice@evil", "pool") == local_name("alice", "pool") == local_name("alice@", "") == ""


def test_super_users_are_those_of_uid_domain():
    config = load_config([], subsystem="SCHEDD", env={"_CONDOR_UID_DOMAIN": "pool"})
    settings = Settings.from_config(config)
    assert may_act("root@pool", False, "alice@pool", settings.rights)
    for stranger in ("root@evil.example", "root", "condor@pool.evil.example", "root@pool@evil.example"):
        assert not may_act(stranger, False, "alice@pool", settings.rights)
        assert not may_act(stranger, False, "root@pool", settings.rights)


def test_super_users_of_another_domain_are_named_whole():
    env = {"_CONDOR_UID_DOMAIN": "pool", "_CONDOR_QUEUE_SUPER_USERS": "boss@elsewhere"}
    settings = Settings.from_config(load_config([], subsystem="SCHEDD", env=env))
    assert may_act("boss@elsewhere", False, "alice@pool", settings.rights)
    assert not may_act("boss@pool", False, "alice@pool", settings.rights)


@spec("TLS-15")
@pytest.mark.parametrize("name", ["root", "condor", ME, "boss"])
async def test_a_namesake_of_another_domain_can_do_nothing_to_a_job(tmp_path, name):
    async with Pool(tmp_path, QUEUE_SUPER_USERS="root, condor, boss") as pool:
        await pool.submit(job_ad())
        stranger = f"{name}@evil.example"
        edit = ClassAd({"JobPrio": 7}).pack()
        for action in ("hold", "release", "remove", "remove-force", "vacate"):
            assert await pool.act(action, "1.0", user=stranger) == {"1.0": "denied"}
        assert await pool.act("edit", "1.0", edits=edit, user=stranger) == {"1.0": "denied"}
        for asked in (
            FetchFiles(user=stranger, job_id="1.0", log=True),
            VisitJob(user=stranger, job_id="1.0", wish=Wish(kind="run")),
        ):
            with pytest.raises(RemoteFailure) as refusal:
                await pool.client.call("schedd.ap", asked, timeout=10)
            assert refusal.value.code == "denied"
        assert (await pool.job("1.0"))["JobPrio"] == 0
        assert await pool.act("edit", "1.0", edits=edit, user=USER.upper().replace(ME.upper(), ME)) == {"1.0": "done"}


async def test_who_is_no_user_is_told_so_and_has_no_credentials(tmp_path):
    async with Pool(tmp_path) as pool:
        for nobody in ("Accounting", "a@b@c", ""):
            with pytest.raises(RemoteFailure, match="is no user") as refusal:
                await pool.client.call("schedd.ap", FetchFiles(user=nobody, job_id="", credentials=True), timeout=10)
            assert refusal.value.code == "bad-request"


async def test_a_namesake_of_the_daemons_account_gets_no_files_of_its(tmp_path):
    async with Pool(tmp_path, ROOST_SCHEDD_FILE_USERS="alice") as pool:
        for stranger in (f"{ME}@evil.example", "alice@evil.example"):
            with pytest.raises(RemoteFailure, match="UID_DOMAIN"):
                await pool.submit(job_ad(TransferInput=str(tmp_path / "job_queue.db")), user=stranger)
        await pool.submit(job_ad(), user="alice@pool")
        assert (await pool.job("1.0"))["User"] == "alice@pool"
        assert (await pool.job("1.0"))["Owner"] == "alice"


@pytest.mark.parametrize("user", ["root", "", "@pool", "root@", "a@b@c", "a b@pool", "a/../b@pool"])
def test_what_is_no_user_submits_nothing(user):
    with pytest.raises(BadSubmit):
        owner_of(user)


def test_the_gateway_completes_the_owner_that_an_administrator_names():
    admin = Identity("root@pool", Level.ADMINISTRATOR)
    assert owner_for(admin, "alice", "pool") == "alice@pool"
    assert owner_for(admin, "alice@x", "pool") == "alice@x"
    assert owner_for(admin, "", "pool") == "root@pool"


def test_an_account_is_that_of_a_user_of_uid_domain_only():
    def find(name):
        return Login(name, {"root": 0, "nobody": 65534}.get(name, 1000), 1000, (), "/") if name != "gone" else None

    here = rules()
    assert choose_account(here, "slot1@m", ClassAd({"User": "alice@pool", "Owner": "alice"}), find).name == "alice"
    for user in ("alice@evil", "alice", "root@pool", "gone@pool", "@pool", ""):
        assert choose_account(here, "slot1@m", ClassAd({"User": user, "Owner": "alice"}), find).name == "nobody"

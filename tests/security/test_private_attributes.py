"""Private attributes of a job (its environment) are for its owner and administrators: nobody else is shown them, and no
constraint, projection or reference tells of them."""

import json

import msgpack
import pytest

from engine.queue.jobs import raw_cells
from shared.bus.memory import MemoryBus
from shared.classad import ClassAd
from shared.messages.queue import ActOnJobs, QueryJobs
from tests.integration.inside import InsidePool
from tests.scheddpool import USER, Pool, job_ad
from tests.spec import spec
from tests.waiting import eventually

SECRET = "hunter2-of-the-owner"
OTHER = "mallory@pool"
NAMESAKE = USER.partition("@")[0] + "@evil.example"
#: All that asks whether there is a secret, each in a way of its own.
PROBES = [
    f'regexp("{SECRET}", Environment)',
    f'regexp("{SECRET}", MY.Env)',
    f'stringListMember("PASSWORD={SECRET}", Environment, " ")',
    "Environment isnt undefined",
    f'regexp("{SECRET}", Copy)',
    f'regexp("{SECRET}", eval("Environment"))',
    f'regexp("{SECRET}", unparse(Environment))',
    f'regexp("{SECRET}", [x = Environment].x)',
    "size(Environment) > 0",
]


def secret_ad(**attributes):
    return job_ad(
        Environment=f"PASSWORD={SECRET}", Env=f"PASSWORD={SECRET}", Copy="=Environment", Deep="=strcat(Copy, Env)",
        **attributes,
    )  # fmt: skip


async def ask(pool, user, **more):
    return await pool.call(QueryJobs(user=user, **more))


def told(page) -> bytes:
    return b"".join(page.ads) + page.columns


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("user", ["", OTHER, NAMESAKE, USER.partition("@")[0]])
async def test_others_are_not_shown_an_environment(tmp_path, user, history):
    async with Pool(tmp_path) as pool:
        await pool.submit(secret_ad(), procs=[ClassAd({"Environment": f"OWN={SECRET}"}), ClassAd()])
        if history:
            assert set((await pool.act("remove", "1")).values()) == {"done"}
            await eventually(lambda: pool.history("1"))
        mine = await ask(pool, USER, history=history)
        assert [SECRET.encode() in ad for ad in mine.ads] == [True, True]
        assert SECRET.encode() in told(await pool.call(QueryJobs(admin=True, history=history)))
        for more in (
            {},
            {"projection": ["Environment", "Env", "ENVIRONMENT", "ClusterId"]},
            {"projection": ["Copy", "Deep", "ProcId"]},
            {"projection": ["Copy", "Env", "ProcId"], "columns": True},
            {"ids": ["1.0"]},
            {"newest": True},
        ):
            page = await ask(pool, user, history=history, **more)
            assert len(page.ads) + page.rows in (1, 2)
            assert SECRET.encode() not in told(page), more


@spec("TLS-16")
@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("probe", PROBES)
async def test_no_constraint_tells_of_anothers_environment(tmp_path, probe, history):
    async with Pool(tmp_path) as pool:
        await pool.submit(secret_ad())
        if history:
            await pool.act("remove", "1.0")
            await eventually(pool.history)
        shown = len((await ask(pool, OTHER, constraint=probe, history=history)).ads)
        hidden = len((await ask(pool, OTHER, constraint=f"({probe}) =!= true", history=history)).ads)
        assert (shown, hidden) == (0, 1)
        if probe not in PROBES[5:8]:
            assert len((await ask(pool, USER, constraint=probe, history=history)).ads) == 1
        if not history:
            # An order that is refused names the jobs that it means.
            asked = ActOnJobs(user=OTHER, action="hold", constraint=probe)
            assert (await pool.call(asked)).results == {}


async def test_columns_of_several_owners_tell_each_his_own(tmp_path):
    async with Pool(tmp_path, ROOST_SCHEDD_FILE_USERS="mallory") as pool:
        await pool.submit(secret_ad())
        await pool.submit(job_ad(Environment="MINE=1"), user=OTHER)
        page = await ask(pool, OTHER, projection=["Environment", "ClusterId"], columns=True)
        assert SECRET.encode() not in page.columns
        assert b"MINE=1" in page.columns
        assert page.rows == 2


async def test_a_cluster_of_late_materialization_keeps_its_environment_too(tmp_path):
    async with Pool(tmp_path) as pool:
        await pool.submit(secret_ad(JobMaterializeLimit=1, JobMaterializeMaxIdle=1), procs=3)
        assert SECRET.encode() in told(await ask(pool, USER, factories=True))
        for more in ({}, {"projection": ["Environment", "Copy"]}):
            page = await ask(pool, OTHER, factories=True, **more)
            assert len(page.ads) == 1
            assert SECRET.encode() not in told(page)
        assert not (await ask(pool, OTHER, factories=True, constraint=PROBES[0])).ads
        acted = await pool.call(ActOnJobs(user=OTHER, action="hold", constraint=PROBES[0]))
        assert acted.results == {}


async def test_superusers_see_it_and_further_attributes_can_be_named(tmp_path):
    knobs = {"QUEUE_SUPER_USERS": "boss", "ROOST_SCHEDD_PRIVATE_JOB_ATTRS": "Environment, Args"}
    async with Pool(tmp_path, **knobs) as pool:
        await pool.submit(job_ad(Environment=SECRET, Args=SECRET, Env="shown"))
        assert SECRET.encode() in told(await ask(pool, "boss@pool"))
        page = await ask(pool, OTHER)
        assert SECRET.encode() not in told(page)
        assert b"shown" in told(page)


async def test_the_negotiator_and_events_have_no_environment_and_the_startd_has_it(tmp_path, monkeypatch):
    sent = []
    publish = MemoryBus.publish

    async def publishing(self, exchange, key, message, **more):
        sent.append(msgpack.packb(message.model_dump(mode="python")))
        return await publish(self, exchange, key, message, **more)

    monkeypatch.setattr(MemoryBus, "publish", publishing)
    async with Pool(tmp_path) as pool:
        await pool.submit(secret_ad())
        requests = await pool.requests(significant=["Environment", "RequestCpus"])
        (request,) = requests.requests[USER]
        assert SECRET.encode() not in request.ad
        assert "copy" in raw_cells(request.ad)
        await pool.match()
        await eventually(lambda: pool.startd.activations)
        assert SECRET.encode() in pool.startd.activations[0].job_ad
        await eventually(lambda: "job.sorted" in pool.event_types())
        await pool.act("remove", "1.0")
    assert any(b"job" in one for one in sent)
    assert not [one for one in sent if SECRET.encode() in one]


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    pool = InsidePool(tmp_path_factory.mktemp("pool"), ROOST_GATEWAY_RATE="0", ROOST_GATEWAY_ANONYMOUS_RATE="0")
    yield pool
    pool.close()


def answers(inside, token, **samples):
    """What all routes that read answer to a token: {path: bytes}. Parameters that are wanted are from samples."""
    _, _, described = inside.ask("GET", "/openapi.json")
    found = {}
    for path, methods in described["paths"].items():
        if "get" not in methods or "/events" in path or "/visits" in path:
            continue
        query = []
        for parameter in methods["get"].get("parameters", []):
            name = parameter["name"]
            if parameter["in"] == "path":
                path = path.replace("{" + name + "}", str(samples.get(name, "x")))
            elif parameter.get("required"):
                query.append(f"{name}={samples.get(name, 'x')}")
        for more in ("", "constraint=true", "history=true", "factories=true", "ids=" + samples["job_id"]):
            address = path + "?" + "&".join(filter(None, [*query, more]))
            body = inside.ask("GET", address, token=token)[2]
            found[address] = body if isinstance(body, bytes) else json.dumps(body).encode()
    return found


def test_a_token_to_read_reads_no_environment_by_any_route(inside):
    job = ClassAd({"Cmd": "/bin/true", "Iwd": "/tmp", "ShouldTransferFiles": "NO", "JobStatus": 5})
    job["Environment"] = f"PASSWORD={SECRET}"
    ids = []
    for number in range(2):
        body = {"submit_id": f"private{number}", "cluster_ad": job.pack(), "procs": [ClassAd().pack()]}
        status, _, answer = inside.submit_raw(body)
        assert status == 200, answer
        ids.append(f"{answer['cluster']}.0")
    with inside.client() as owner:
        owner.act("remove", [ids[1]])
        stranger = owner.create_token("curious@elsewhere", "WRITE")
        namesake = owner.create_token(f"{USER.partition('@')[0]}@elsewhere", "READ")
    shown = answers(inside, "own", job_id=ids[0])
    assert len([path for path, body in shown.items() if SECRET.encode() in body]) >= 3
    for token in (stranger, namesake):
        leaks = [
            path
            for job_id in ids
            for path, body in answers(inside, token, job_id=job_id).items()
            if SECRET.encode() in body
        ]
        assert leaks == []
    # Who may write is not told by a refusal either.
    order = {"action": "hold", "constraint": f'regexp("{SECRET}", Environment)'}
    assert inside.ask("POST", "/v1/jobs/action", body=order, token=stranger)[2] == {}

"""`roost import` against a pool: what another pool left behind comes over whole, once, or not at all."""

import os
import pwd
import random
import time

import msgpack
import pytest

from roost import protocol
from roost.errors import ClientError
from shared.classad import ClassAd
from tests.integration.inside import InsidePool
from tests.spec import spec

NOW = int(time.time())
HOUR = 3600


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    made = InsidePool(tmp_path_factory.mktemp("import"), GROUP_NAMES="group_physics", GROUP_QUOTA_group_physics="20")
    yield made
    made.close()


def accountant_log(records, updated):
    """An Accountantnew.log of {name: {attribute: text}}."""
    lines = [f"107 3 CreationTimestamp {updated - 9}", "101 Accountant. * (empty)"]
    lines.append(f"103 Accountant. LastUpdateTime {updated}")
    for name, values in records.items():
        lines.append(f"101 Customer.{name} * (empty)")
        lines += [f"103 Customer.{name} {attribute} {text}" for attribute, text in values.items()]
    return "".join(f"{line}\n" for line in lines)


def users(count, rng, domain):
    return {
        f"user{number}@{domain}": {
            "Priority": f"{rng.uniform(0.5, 900):f}",
            "PriorityFactor": f"{rng.choice((10, 1000, 1e7)):f}",
            "AccumulatedUsage": f"{rng.uniform(1, 1e8):f}",
            "WeightedAccumulatedUsage": f"{rng.uniform(1, 1e9):f}",
            "BeginUsageTime": str(NOW - rng.randrange(10**6, 10**8)),
            "LastUsageTime": str(NOW - rng.randrange(10**6)),
            "Floor": "0.000000",
            "Ceiling": str(rng.choice((-1, 50))),
        }
        for number in range(count)
    }


@spec("ACC-23")
def test_priorities_of_fifty_users_come_over_once(pool, tmp_path):
    records = users(50, random.Random(7), "faraway")
    log = tmp_path / "Accountantnew.log"
    log.write_text(accountant_log({**records, "group_physics": {"Priority": "8.0"}, "group_old": {}}, NOW))
    planned = pool.roost("import", "accountant", "-dry-run", str(log))
    assert "52 records: 51 would be taken in, 0 known already, 0 without anything to keep, 1 left out" in planned
    with pool.client() as client:
        assert not [ad for ad in client.priorities() if "faraway" in ad.eval("Name")]
        done = pool.roost("import", "accountant", str(log))
        assert "52 records: 51 taken in" in done
        assert f"{log}, line 456: group_old is left out: there is no such accounting group in GROUP_NAMES" in done
        ads = {ad.eval("Name"): ad for ad in client.priorities()}
        for name, values in records.items():
            ad, factor = ads[name], float(values["PriorityFactor"])
            assert ad.eval("PriorityFactor") == factor
            assert ad.eval("Priority") / factor == pytest.approx(float(values["Priority"]), rel=0.01, abs=0.01)
            assert ad.eval("AccumulatedUsage") == pytest.approx(float(values["AccumulatedUsage"]))
            assert ad.eval("WeightedAccumulatedUsage") == pytest.approx(float(values["WeightedAccumulatedUsage"]))
            assert ad.eval("BeginUsageTime") == int(values["BeginUsageTime"])
            assert ad.eval("LastUsageTime") == int(values["LastUsageTime"])
            assert ad.eval("Ceiling") == int(values["Ceiling"])
        assert ads["group_physics"].eval("Priority") > 1.0
        pool.roost("userprio", "-setprio", "user3@faraway", "77")
        again = pool.roost("import", "accountant", str(log))
        assert "52 records: 0 taken in, 51 known already" in again
        [ad] = client.priorities(submitters=["user3@faraway"])
        assert ad.eval("Priority") / ad.eval("PriorityFactor") == pytest.approx(77, rel=0.01)
        pool.roost("import", "accountant", "-replace", str(log))
        [ad] = client.priorities(submitters=["user3@faraway"])
        wanted = float(records["user3@faraway"]["Priority"])
        assert ad.eval("Priority") / ad.eval("PriorityFactor") == pytest.approx(wanted, rel=0.01, abs=0.01)


@spec("ACC-23")
def test_a_broken_file_changes_nothing(pool, tmp_path):
    log = tmp_path / "Accountantnew.log"
    log.write_text(accountant_log({"first@broken": {"Priority": "9.0"}, "second@broken": {"Priority": "high"}}, NOW))
    told = pool.roost("import", "accountant", str(log), ok=False)
    assert f"{log}, line 7: Customer.second@broken: Priority is 'high' (a number is wanted" in told
    with pool.client() as client:
        assert not [ad for ad in client.priorities() if "broken" in ad.eval("Name")]
    assert "can be read" in pool.roost("import", "accountant", str(tmp_path / "none"), ok=False)


@spec("ACC-23")
def test_only_administrators_import_accounts(pool):
    with pool.client() as admin:
        token = admin.create_token("mallory@elsewhere", "WRITE")
        with pool.client(token) as client, pytest.raises(ClientError, match="ADMINISTRATOR"):
            client.import_accounts([{"name": "mallory@elsewhere", "priority": 0.5}])
        assert not [ad for ad in admin.priorities() if "mallory" in ad.eval("Name")]


# --- the queue


def queue_log(clusters):
    """A job_queue.log of {cluster: (what its jobs share, {proc: its own attributes})}."""
    lines = ["107 7 CreationTimestamp 1700000000", "101 0.0 Job Machine", "105", "103 0.0 NextClusterNum 99", "106"]
    for number, (common, procs) in clusters.items():
        lines += ["105", f"101 0{number}.-1 Job Machine"]
        lines += [f"103 0{number}.-1 {name} {text}" for name, text in common.items()]
        for proc, own in procs.items():
            lines += [f"101 {number}.{proc} Job Machine"]
            own = {"GlobalJobId": f'"old@dom#{number}.{proc}#{common["QDate"]}"', **own}
            lines += [f"103 {number}.{proc} {name} {text}" for name, text in own.items()]
        lines.append("106")
    return "".join(f"{line}\n" for line in lines)


def shared(user, **more):
    return {
        "User": f'"{user}"',
        "JobUniverse": "5",
        "Cmd": '"/bin/true"',
        "TransferExecutable": "false",
        "Iwd": '"/tmp"',
        "Requirements": "TARGET.Nowhere",
        "RequestMemory": "ifThenElse(MemoryUsage =!= undefined, MemoryUsage, 64)",
        "QDate": str(NOW - HOUR),
        **more,
    }


HELD = {"JobStatus": "5", "HoldReason": '"by hand, \\"for\\" now"', "HoldReasonCode": "1", "HoldReasonSubCode": "0"}


def import_queue(pool, log, *words, ok=True):
    return pool.roost("import", "queue", *words, str(log), ok=ok)


def jobs_of(client, constraint):
    return {f"{ad['ClusterId']}.{ad['ProcId']}": ad for ad in client.jobs(constraint=constraint)}


@spec("TLS-19")
def test_a_queue_of_hundreds_of_jobs_comes_over_once(pool, tmp_path, record_property):
    """Of fifteen users, in twenty clusters with gaps in their numbers; a fifth held, a fifth running, some over."""
    rng = random.Random(11)
    clusters, wanted = {}, {}
    for number in range(5000, 5020):
        user = f"user{number % 15}@elsewhere"
        procs = {}
        for proc in sorted(rng.sample(range(40), 12)):
            kind = rng.choice(("idle", "idle", "idle", "held", "running", "over"))
            own = {"JobPrio": str(rng.randrange(-5, 5)), "NumJobStarts": str(rng.randrange(9)), "Args": f'"{proc}"'}
            own |= HELD if kind == "held" else {"JobStatus": {"idle": "1", "running": "2", "over": "4"}[kind]}
            procs[proc] = own
            if kind != "over":
                wanted[f"{number}.{proc}"] = (user, kind, own)
        clusters[number] = (shared(user, WhoSaid=f'"{number}"'), procs)
    assert len(wanted) > 150
    log = tmp_path / "job_queue.log"
    log.write_text(queue_log(clusters))
    constraint = "RoostImportedFrom =!= undefined && WhoSaid =!= undefined"
    with pool.client() as client:
        planned = import_queue(pool, log, "-dry-run")
        assert f"20 clusters: {len(wanted)} jobs would be taken in, 0 known already" in planned
        assert not jobs_of(client, constraint)
        began = time.monotonic()
        done = import_queue(pool, log)
        record_property("seconds", time.monotonic() - began)
        assert f"20 clusters: {len(wanted)} jobs taken in, 0 known already" in done
        assert f"{240 - len(wanted)} left out completed" in done
        found = jobs_of(client, constraint)
        assert found.keys() == wanted.keys()
        for name, (user, kind, own) in wanted.items():
            ad = found[name]
            assert ad["User"] == user
            assert ad["JobStatus"] == (5 if kind == "held" else 1)
            assert (ad["JobPrio"], ad["NumJobStarts"], ad["Args"]) == (
                int(own["JobPrio"]),
                int(own["NumJobStarts"]),
                own["Args"].strip('"'),
            )
            assert ad["QDate"] == NOW - HOUR
            assert ad["GlobalJobId"].endswith(f"#{name}#{NOW - HOUR}")
            assert ad.text("RequestMemory") == "ifThenElse(MemoryUsage isnt undefined,MemoryUsage,64)"
            if kind == "held":
                assert (ad["HoldReason"], ad["HoldReasonCode"]) == ('by hand, "for" now', 1)
        again = import_queue(pool, log)
        assert f"20 clusters: 0 jobs taken in, {len(wanted)} known already" in again
        assert jobs_of(client, constraint).keys() == wanted.keys()
        # Also what has left the queue does not come again.
        gone = min(wanted)
        client.act("remove", [gone])
        assert f"0 jobs taken in, {len(wanted)} known already" in import_queue(pool, log)
        assert jobs_of(client, constraint).keys() == wanted.keys() - {gone}
        client.act("remove", constraint=constraint)


@spec("TLS-19")
def test_a_number_that_is_taken_becomes_another_which_is_printed(pool, tmp_path):
    with pool.client() as client:
        mine = client.submit({"executable": "/bin/true", "requirements": "false"}).cluster
        log = tmp_path / "job_queue.log"
        log.write_text(queue_log({mine: (shared("user1@elsewhere", WhoSaid='"taken"'), {0: {"JobStatus": "1"}})}))
        assert f"{mine} -> the next number: 1 jobs" in import_queue(pool, log, "-dry-run")
        done = import_queue(pool, log)
        (name,) = jobs_of(client, 'WhoSaid == "taken"')
        assert f"{mine} -> {name.partition('.')[0]}: 1 jobs of user1@elsewhere (1 idle, 0 held)" in done
        assert f"{name.partition('.')[0]}: 1 jobs of user1@elsewhere are here already" in import_queue(pool, log)
        client.act("remove", [name, str(mine)])


@spec("TLS-19")
def test_what_was_spooled_comes_along_and_runs(pool, tmp_path):
    """With the rights of its owner: here whoever runs the tests."""
    me = pwd.getpwuid(os.getuid()).pw_name
    common = shared(f"{me}@elsewhere", WhoSaid='"spooled"', Requirements="true", WhenToTransferOutput='"ON_EXIT"')
    common |= {"ShouldTransferFiles": '"YES"', "Cmd": '"run.sh"', "TransferExecutable": "true"}
    common |= {"SUBMIT_Cmd": '"/home/x/run.sh"', "SUBMIT_Iwd": f'"{tmp_path}"', "Out": '"out"', "Err": '"err"'}
    common |= {"StageInFinish": str(NOW), "TransferInput": '"data"', "SUBMIT_TransferInput": '"here/data"'}
    log = tmp_path / "job_queue.log"
    log.write_text(queue_log({6001: (common, {0: {"JobStatus": "1"}, 1: {"JobStatus": "1"}, 2: {**HELD}})}))
    folders = [tmp_path / "6001" / str(proc) / f"cluster6001.proc{proc}.subproc0" for proc in range(3)]
    for folder in (folders[0], folders[2]):
        folder.mkdir(parents=True)
        (folder / "run.sh").write_text("#!/bin/sh\ncat data\n")
        (folder / "run.sh").chmod(0o755)
        (folder / "data").write_text("brought along")
    with pool.client() as client:
        told = import_queue(pool, log)
        assert "6001.1 waits on hold: its files should be in" in told
        assert "1 of them wait on hold for their files" in told
        assert client.wait(["6001.0"], timeout=60) == {"6001.0": 4}
        assert client.output("6001.0", "out").read() == b"brought along"
        jobs = jobs_of(client, 'WhoSaid == "spooled" && JobStatus == 5')
        assert {name: ad["HoldReasonCode"] for name, ad in jobs.items()} == {"6001.1": 16, "6001.2": 1}
        assert jobs["6001.2"]["HoldReason"] == 'by hand, "for" now'
        folders[0].rename(folders[1].parent.parent / "x")
        folders[1].mkdir(parents=True)
        for name in ("run.sh", "data"):
            (tmp_path / "6001" / "x" / name).rename(folders[1] / name)
        assert "for their files" not in import_queue(pool, log)
        assert client.wait(["6001.1"], timeout=60) == {"6001.1": 4}
        client.act("remove", ["6001"])


@spec("TLS-19")
def test_files_are_read_with_the_rights_of_their_owner(pool, tmp_path):
    """Else a job's ad would be a way to any file that whoever imports can read."""
    if os.geteuid() != 0:
        pytest.skip("only root reads with the rights of others")
    secret = tmp_path / "secret"
    secret.write_text("root's own")
    secret.chmod(0o600)
    clusters = {}
    for number, user in ((6101, "nobody@elsewhere"), (6102, "noaccount@elsewhere")):
        more = {"TransferInput": f'"{secret}"', "ShouldTransferFiles": '"YES"', "WhoSaid": '"thief"'}
        clusters[number] = (shared(user, **more), {0: {"JobStatus": "1"}})
    log = tmp_path / "job_queue.log"
    log.write_text(queue_log(clusters))
    told = import_queue(pool, log)
    assert f"6101.0 waits on hold: input file {secret} does not exist, or its owner can not see it" in told
    assert "6102.0 waits on hold: its files can be read with the rights of noaccount only" in told
    with pool.client() as client:
        jobs = jobs_of(client, 'WhoSaid == "thief"')
        assert {name: ad["HoldReasonCode"] for name, ad in jobs.items()} == {"6101.0": 16, "6102.0": 16}
        client.act("remove", ["6101", "6102"])


@spec("TLS-19")
def test_one_cluster_that_can_not_come_keeps_all_out_until_it_is_left_out(pool, tmp_path):
    clusters = {
        6201: (shared("user1@elsewhere", WhoSaid='"broken"'), {0: {"JobStatus": "1"}}),
        6202: (shared("user1@elsewhere", WhoSaid='"broken"'), {0: {"JobStatus": "1", "JobPrio": "high"}}),
        6203: (shared("no such@elsewhere", WhoSaid='"broken"'), {0: {"JobStatus": "1"}}),
    }
    log = tmp_path / "job_queue.log"
    log.write_text(queue_log(clusters))
    told = import_queue(pool, log, ok=False)
    assert "cluster 6202: job 0: JobPrio: high is no number" in told
    assert "cluster 6203: 'no such@elsewhere' is no user" in told
    assert f"{log}, line " in told
    with pool.client() as client:
        assert not jobs_of(client, 'WhoSaid == "broken"')
        done = import_queue(pool, log, "-leave-out", "6202", "6203", "--")
        assert "1 clusters: 1 jobs taken in, 0 known already, 2 left out that -leave-out names" in done
        assert jobs_of(client, 'WhoSaid == "broken"').keys() == {"6201.0"}
        client.act("remove", ["6201"])


@spec("TLS-19")
def test_only_administrators_import_jobs(pool):
    with pool.client() as admin:
        token = admin.create_token("mallory@elsewhere", "WRITE")
        with pool.client(token) as client, pytest.raises(ClientError, match="ADMINISTRATOR"):
            client.import_jobs("mallory@elsewhere", "old#1#1", 1, ClassAd({"Cmd": "/bin/true"}), {0: ClassAd()})
        for numbers, told in (([0, 0], "each above the one before"), ([-1], "each above"), ([], "each job has one")):
            with pytest.raises(ClientError, match=told):
                admin._do(
                    protocol.single(
                        protocol.call(
                            "POST",
                            "/v1/jobs/import",
                            {},
                            msgpack.packb(
                                {
                                    "user": "a@b",
                                    "origin": "o",
                                    "cluster": 1,
                                    "cluster_ad": ClassAd({"Cmd": "/x"}).pack(),
                                    "numbers": numbers,
                                    "procs": [ClassAd().pack()] * max(1, len(numbers)),
                                }
                            ),
                        )
                    )
                )

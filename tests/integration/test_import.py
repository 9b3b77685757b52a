"""`roost import` against a pool: what another pool left behind comes over whole, once, or not at all."""

import random
import time

import pytest

from roost.errors import ClientError
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


def users(count, rng):
    return {
        f"user{number}@elsewhere": {
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
    records = users(50, random.Random(7))
    log = tmp_path / "Accountantnew.log"
    log.write_text(accountant_log({**records, "group_physics": {"Priority": "8.0"}, "group_old": {}}, NOW))
    planned = pool.roost("import", "accountant", "-dry-run", str(log))
    assert "52 records: 51 would be taken in, 0 known already, 0 without anything to keep, 1 left out" in planned
    with pool.client() as client:
        assert not [ad for ad in client.priorities() if "elsewhere" in ad.eval("Name")]
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
        pool.roost("userprio", "-setprio", "user3@elsewhere", "77")
        again = pool.roost("import", "accountant", str(log))
        assert "52 records: 0 taken in, 51 known already" in again
        [ad] = client.priorities(submitters=["user3@elsewhere"])
        assert ad.eval("Priority") / ad.eval("PriorityFactor") == pytest.approx(77, rel=0.01)
        pool.roost("import", "accountant", "-replace", str(log))
        [ad] = client.priorities(submitters=["user3@elsewhere"])
        wanted = float(records["user3@elsewhere"]["Priority"])
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

"""A personal pool has no broker, and statements all the same: only its own gateway says for whom something is."""

import pytest

from shared.bus.api import RemoteFailure
from shared.messages.base import Person
from shared.messages.orders import SwitchOff
from shared.messages.queue import ActOnJobs, QueryJobs
from tests.integration.inside import InsidePool

ROOT = Person("root@pool", "ADMINISTRATOR")


def test_a_personal_pool_believes_its_own_gateway_alone(tmp_path):
    pool = InsidePool(tmp_path)
    try:
        with pool.client() as client:
            made = client.submit({"executable": "/bin/true", "hold": "true", "should_transfer_files": "no"})
        job = f"{made.cluster}.0"
        bus, name = pool.bus("gateway.evil"), pool.runner("schedd").daemon.context.name
        inbox = f"schedd.{name}"
        try:
            for attack in (
                ActOnJobs(user="root@pool", admin=True, action="remove", ids=[job]),
                QueryJobs(admin=True),
                SwitchOff(by="root@pool"),
            ):
                with pytest.raises(RemoteFailure, match="the gateway has no key"):
                    pool.run(bus.call(inbox, attack, person=ROOT))
            assert len(pool.run(bus.call(inbox, QueryJobs())).ads) == 1
        finally:
            pool.run(bus.stop())
        with pool.client() as client:
            client.act("remove", [job])
        assert not list(tmp_path.rglob("*.key"))  # the key never leaves the process
    finally:
        pool.close()

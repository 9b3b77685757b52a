from services.schedd.core.rights import may_act
from services.schedd.settings import Settings


def test_only_owners_and_administrators_act_on_a_job():
    settings = Settings()
    assert may_act("alice@x", False, "alice@x", settings.rights)
    assert may_act("root@x", True, "alice@x", settings.rights)
    for other in ("bob@x", "alice@y", "Alice@x", "alice", ""):
        assert not may_act(other, False, "alice@x", settings.rights)

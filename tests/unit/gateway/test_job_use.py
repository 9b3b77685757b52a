from services.gateway.core.job_use import use
from shared.classad import ClassAd, parse_expr


def test_what_a_job_uses_of_what_it_asked_for():
    ad = ClassAd(
        {"JobStatus": 2, "RemoteUserCpu": 30.0, "RemoteSysCpu": 10.0, "JobCurrentStartDate": 100, "RequestCpus": 2}
        | {"MemoryUsage": 300, "RequestMemory": 512, "DiskUsage": 4096, "RequestDisk": 2048}
    )
    assert use(ad, 120.0) == {
        "at": 120.0,
        "parts": {
            "cpus": {"used": 2.0, "asked": 2.0},
            "memory": {"used": 300.0, "asked": 512.0},
            "disk": {"used": 4.0, "asked": 2.0},
        },
    }
    # Who did not ask is known by an expression, which is what the job uses.
    ad["RequestMemory"] = parse_expr("MemoryUsage ?: 1")
    ad["MemoryProvisioned"] = 2048
    assert use(ad, 120.0)["parts"]["memory"] == {"used": 300.0, "given": 2048.0}
    assert use(ClassAd({"JobStatus": 1, "RequestCpus": 2}), 1.0)["parts"] == {}

from services.schedd.jobs import Cluster, Job, JobStatus, projected, raw_cells
from shared.classad import ClassAd
from shared.classad.expr import fold

AD = ClassAd({"Cmd": "x", "Épaisseur": 1, "épaisseur": 2})


def test_a_projection_finds_names_beyond_ascii_and_those_that_are_not_stored():
    cluster = Cluster(7, "alice", "alice@pool", "alice@pool", qdate=3, ad=AD)
    job = Job(cluster, 5, ClassAd({"Épaisseur": 2}), JobStatus.IDLE, 0, "alice@pool")
    keys = [fold(name) for name in ("CMD", "Épaisseur", "procid", "GlobalJobId", "ServerTime", "AutoClusterId", "None")]
    assert dict(ClassAd.unpack(projected("ap", job, 9.5, keys)).items()) == {
        "Cmd": "x",
        "Épaisseur": 2,
        "ProcId": 5,
        "GlobalJobId": "ap#7.5#3",
        "ServerTime": 9,
    }


def test_a_projection_tells_exactly_when_the_ad_was_read():
    cluster = Cluster(7, "alice", "alice@pool", "alice@pool", qdate=3, ad=AD)
    job = Job(cluster, 5, ClassAd({}), JobStatus.IDLE, 0, "alice@pool")
    read = ClassAd.unpack(projected("ap", job, 9.625, [fold("RoostReadAt")]))
    assert dict(read.items()) == {"RoostReadAt": 9.625}


def test_names_that_differ_for_ads_differ_in_the_queue():
    assert raw_cells(AD.pack()).keys() == AD.table().keys()

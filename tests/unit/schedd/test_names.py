from services.schedd.jobs import raw_cells
from services.schedd.queries import project
from shared.classad import ClassAd

AD = ClassAd({"Cmd": "x", "Épaisseur": 1, "épaisseur": 2})


def test_a_projection_finds_names_beyond_ascii():
    assert dict(ClassAd.unpack(project(AD, ["CMD", "Épaisseur"])).items()) == {"Cmd": "x", "Épaisseur": 1}


def test_names_that_differ_for_ads_differ_in_the_queue():
    assert raw_cells(AD.pack()).keys() == AD.table().keys()

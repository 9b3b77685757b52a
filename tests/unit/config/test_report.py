"""What config-val tells."""

import pytest

from shared.config import ConfigError, load_config
from shared.config.report import dump, values

TEXT = """A = $(B)x
B = 3
NEGOTIATOR_INTERVAL = 5*$(B)
E =
SCHEDD.A = 9
H @=e
one
two
@e
LOOP = $(LOOP2)
LOOP2 = $(LOOP)
use FEATURE : PartitionableSlot
"""


@pytest.fixture
def load(tmp_path):
    path = tmp_path / "pool.conf"
    path.write_text(TEXT)
    return lambda **options: load_config([path], env={}, **options)


def test_values_stand_one_a_line(load):
    report = values(load(), ["A", "NEGOTIATOR_TIMEOUT"])
    assert (report.text, report.errors, report.exit_code) == ("3x\n30\n", "", 0)


def test_what_is_not_defined_is_an_error_but_the_rest_is_told(load):
    report = values(load(), ["A", "NOPE", "E", "B"])
    assert report.text == "3x\n3\n"
    assert report.errors == "Not defined: NOPE\nNot defined: E\n"
    assert report.exit_code == 1


def test_verbose_tells_origin_raw_text_and_default(load, tmp_path):
    report = values(load(), ["NEGOTIATOR_INTERVAL"], verbose=True)
    assert report.text == (
        f"NEGOTIATOR_INTERVAL = 5*3\n # at: {tmp_path}/pool.conf, line 3\n # raw: 5*$(B)\n # default: 60\n"
    )


def test_scope_that_answered_is_named(load):
    report = values(load(subsystem="SCHEDD"), ["A"], verbose=True)
    assert report.text.startswith("SCHEDD.A = 9\n")


def test_raw_and_default(load):
    assert values(load(), ["A"], raw=True).text == "$(B)x\n"
    assert values(load(), ["NEGOTIATOR_INTERVAL"], default=True).text == "60\n"
    assert values(load(), ["A"], default=True).exit_code == 1


def test_data_is_complete(load, tmp_path):
    (answer,) = values(load(), ["slot_type_1"]).as_json()
    assert answer == {
        "name": "SLOT_TYPE_1",
        "value": "100%",
        "raw": "100%",
        "file": f"{tmp_path}/pool.conf",
        "line": 12,
        "template": "use FEATURE:PartitionableSlot",
        "default": None,
    }


def test_loop_is_told_not_raised(load):
    report = values(load(), ["LOOP", "B"])
    assert report.text == "3\n"
    assert "refers to itself" in report.errors


def test_dump_reads_back(load, tmp_path):
    again = tmp_path / "again.conf"
    again.write_text(dump(load()).text)
    first, second = load(), load_config([again], env={})
    for name in ("A", "B", "NEGOTIATOR_INTERVAL", "SCHEDD.A", "H", "SLOT_TYPE_1"):
        assert second.get(name) == first.get(name)


def test_dump_by_pattern(load):
    report = dump(load(), "^negotiator_int")
    assert [answer.name for answer in report.answers] == ["NEGOTIATOR_INTERVAL"]
    assert "NEGOTIATOR_TIMEOUT" in dump(load(), "^negotiator_", default=True).text
    with pytest.raises(ConfigError, match="regular expression"):
        dump(load(), "(")

"""What the administrator of a machine makes of the jobs that are submitted there."""

import pytest

from roost.submit import Description, here
from shared.config import ConfigError
from tests.spec import spec


@pytest.fixture
def submit(tmp_path, monkeypatch):
    """Gives the ad of one job, and the warnings."""

    def submit(knobs, commands=""):
        (tmp_path / "machine.conf").write_text(f"{knobs}\n")
        monkeypatch.setenv("ROOST_CONFIG", str(tmp_path / "machine.conf"))
        text = f"executable = /bin/true\n{commands}\nqueue\n"
        description = Description(text, here("job.sub", tmp_path, environment={"A": "1"}))
        [cluster] = description.clusters()
        return cluster.attributes, [problem.message for problem in description.warnings]

    return submit


def text_of(submit, name, knobs, commands=""):
    attributes, _ = submit(knobs, commands)
    return str(attributes[name]) if name in attributes else None


@pytest.mark.parametrize(
    ("knobs", "begin"),
    [
        ("APPEND_REQUIREMENTS = Gold || Silver", "(Memory > 3) && (Gold || Silver) && "),
        ("APPEND_REQUIREMENTS = Gold\nAPPEND_REQ_VANILLA = Silver", "(Memory > 3) && (Silver) && "),
        ("APPEND_REQUIREMENTS =", "(Memory > 3) && (TARGET.Arch"),
    ],
)
def test_a_term_is_added_to_requirements(submit, knobs, begin):
    found = text_of(submit, "Requirements", knobs, "requirements = Memory > 3")
    assert found.startswith(begin)


def test_a_term_that_speaks_of_a_machine_s_attribute_takes_the_place_of_our_own(submit):
    plain = text_of(submit, "Requirements", "")
    added = text_of(submit, "Requirements", 'APPEND_REQUIREMENTS = TARGET.Arch == "RISCV"')
    assert "TARGET.Arch" in plain
    assert added.count("Arch") == 1


@pytest.mark.parametrize(
    ("knobs", "commands", "rank"),
    [
        ("", "", "0.0"),
        ("DEFAULT_RANK = Mips", "", "Mips"),
        ("DEFAULT_RANK = Mips", "rank = Memory", "Memory"),
        ("DEFAULT_RANK = Mips\nDEFAULT_RANK_VANILLA = KFlops", "", "KFlops"),
        ("APPEND_RANK = Site * 10", "", "Site * 10"),
        ("APPEND_RANK = Site * 10", "rank = Memory > 3", "(Memory > 3) + (Site * 10)"),
        ("APPEND_RANK = 1\nAPPEND_RANK_VANILLA = 2\nDEFAULT_RANK = 3", "", "(3) + (2)"),
    ],
)
def test_ranks(submit, knobs, commands, rank):
    assert text_of(submit, "Rank", knobs, commands) == rank


def test_attributes_for_every_job(submit):
    knobs = 'SUBMIT_ATTRS = Site, Unset\nSUBMIT_EXPRS = Twice\nSYSTEM_SUBMIT_ATTRS = Site\nSite = "here"\nTwice = 2 * 3'
    attributes, _ = submit(knobs, '+Twice = "mine"')
    assert (str(attributes["Site"]), str(attributes["Twice"])) == ('"here"', '"mine"')
    assert "Unset" not in attributes


@pytest.mark.parametrize(
    ("name", "knobs", "value", "commands", "given"),
    [
        ("JobNotification", "JOB_DEFAULT_NOTIFICATION = Error", "3", "notification = complete", "2"),
        ("RequestGPUs", "JOB_DEFAULT_REQUESTGPUS = 2", "2", "request_gpus = 1", "1"),
        ("RequestGPUs", "JOB_DEFAULT_REQUESTGPUS = 2", "2", "request_gpus = undefined", None),
        (
            "ShouldTransferFiles",
            "SUBMIT_DEFAULT_SHOULD_TRANSFER_FILES = yes",
            "YES",
            "should_transfer_files = NO",
            "NO",
        ),
        ("JobLeaseDuration", "JOB_DEFAULT_LEASE_DURATION = 60", "60", "job_lease_duration = 90", "90"),
        ("JobLeaseDuration", "JOB_DEFAULT_LEASE_DURATION =", None, "job_lease_duration = 90", "90"),
        ("RequestCpus", "JOB_DEFAULT_REQUESTCPUS = 2 + 1", "2 + 1", "request_cpus = 1", "1"),
    ],
)
def test_defaults(submit, name, knobs, value, commands, given):
    assert text_of(submit, name, knobs) == value
    assert text_of(submit, name, knobs, commands) == given


def test_how_often_a_job_is_tried_again(submit):
    retried = "success_exit_code = 0"
    assert text_of(submit, "JobMaxRetries", "DEFAULT_JOB_MAX_RETRIES = 7", retried) == "7"
    assert text_of(submit, "JobMaxRetries", "", retried) == "2"


def test_whole_environments_can_be_refused(submit):
    knobs = "SUBMIT_ALLOW_GETENV = false"
    with pytest.raises(ConfigError, match=r"getenv = true is not allowed.*SUBMIT_ALLOW_GETENV"):
        submit(knobs, "getenv = true")
    assert "A=1" in text_of(submit, "Environment", knobs, "getenv = A")
    assert "A=1" in text_of(submit, "Environment", "", "getenv = true")


@pytest.mark.parametrize(("command", "unit"), [("request_memory = 100", "M"), ("request_disk = 5", "K")])
def test_requests_without_a_unit(submit, command, unit):
    told = f"{command} has no unit, and counts in {unit}iB"
    assert submit("", command)[1] == []
    assert submit("SUBMIT_REQUEST_MISSING_UNITS = warn", command)[1] == [told]
    assert submit("SUBMIT_REQUEST_MISSING_UNITS = warn", f"{command}{unit}")[1] == []
    with pytest.raises(ConfigError, match=rf"{command} has no unit.*write it: {command}{unit}"):
        submit("SUBMIT_REQUEST_MISSING_UNITS = error", command)


@spec("CFG-21")
@pytest.mark.parametrize(
    "line",
    [
        "APPEND_REQUIREMENTS = Gold &&",
        "JOB_DEFAULT_NOTIFICATION = perhaps",
        "DEFAULT_JOB_MAX_RETRIES = -1",
        "SUBMIT_DEFAULT_SHOULD_TRANSFER_FILES = maybe",
        "SUBMIT_ATTRS = 9lives",
        "SUBMIT_ATTRS = Site",
    ],
)
def test_a_mistake_of_the_administrator_names_its_line(submit, line):
    with pytest.raises(ConfigError, match=r"machine.conf, line \d"):
        submit(f"Site = here we are\n{line}")


@pytest.mark.parametrize("image", ["docker_image = debian", "container_image = a.sif"])
@pytest.mark.parametrize(("knobs", "travels"), [("", None), ("SUBMIT_CONTAINER_NEVER_XFER_ABSOLUTE_CMD = false", "")])
def test_a_program_with_an_absolute_path_is_the_images_or_travels(submit, image, knobs, travels):
    attributes, _ = submit(knobs, image)
    assert attributes["Cmd"] == "/bin/true"
    assert attributes.get("TransferExecutable", "") is (False if travels is None else travels)
    attributes, _ = submit(knobs, f"{image}\ntransfer_executable = true")
    assert "TransferExecutable" not in attributes


def test_a_program_that_is_to_travel_into_a_container_must_be_there(submit):
    with pytest.raises(ConfigError, match="does not exist"):
        submit(
            "SUBMIT_CONTAINER_NEVER_XFER_ABSOLUTE_CMD = false",
            "executable = /no/such\nuniverse = docker\ndocker_image = d",
        )


@pytest.mark.parametrize(("text", "kept"), [("true", "20"), ("19", "20"), ("3+4", "3 + 4"), ("0", "0"), ("40", "40")])
def test_a_lease_of_less_than_twenty_seconds_is_one_of_twenty(submit, text, kept):
    assert text_of(submit, "JobLeaseDuration", "", f"job_lease_duration = {text}") == kept


@pytest.mark.parametrize(
    ("text", "all_of_it"),
    [
        ("true", True),
        ("3", True),
        ("1+1", True),
        ("1e3", True),
        ("0.0", False),
        ("03", False),
        ("A", True),
        ("B", False),
    ],
)
def test_getenv_is_a_condition_or_names(submit, text, all_of_it):
    attributes, _ = submit("", f"getenv = {text}")
    assert ("A=1" in attributes["Environment"]) is all_of_it


@pytest.mark.parametrize("universe", ["scheduler", "local"])
def test_no_plug_in_is_asked_for_beside_the_schedd(submit, universe):
    attributes, _ = submit("", f"universe = {universe}\ntransfer_input_files = http://x.example/f")
    assert "WantTransferPluginMethods" not in attributes


def test_an_empty_command_hides_the_attribute_of_its_name(submit):
    assert text_of(submit, "RequestMemory", "JOB_DEFAULT_REQUESTMEMORY = 77", "RequestMemory = 1K") == "1"
    both = "RequestMemory = 1K\nrequest_memory ="
    assert text_of(submit, "RequestMemory", "JOB_DEFAULT_REQUESTMEMORY = 77", both) == "77"

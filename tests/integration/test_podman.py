"""Jobs on engines other than Docker of root: Podman as root and as an account, and Docker as an account, all of them
the real thing. Jobs run once for all tests, on every engine at the same time (`engine_jobs`).
"""

import pytest

from tests.containers import rootless
from tests.integration import engine_jobs
from tests.integration.engine_jobs import AGAIN, NEW, OLD, PROCESSES
from tests.integration.isolated_pool import open_directory
from tests.servers import ServerError
from tests.spec import spec

pytestmark = [pytest.mark.podman, pytest.mark.timeout(600), pytest.mark.xdist_group("podman")]
NOBODY = "65534"


@pytest.fixture(scope="module")
def found():
    """What became of the jobs, by engine and job."""
    try:
        rootless.check()
    except ServerError as missing:
        pytest.fail(str(missing), pytrace=False)
    with open_directory("/var/tmp") as place:
        return rootless.run(place, engine_jobs.__name__, {engine: {} for engine in rootless.ENGINES})


@pytest.fixture(params=rootless.ENGINES)
def engine(request, found):
    mine = found[request.param]
    assert not mine.get("trouble"), "\n".join(mine["trouble"])
    return mine | {"engine": request.param}


def limits(engine) -> bool:
    return "memory" not in engine["ad"].get("DockerLacksLimits", "")


@spec("DKR-12")
def test_the_ad_tells_which_engine_it_is(engine):
    ad = engine["ad"]
    name = "Docker" if "docker" in engine["engine"] else "Podman"
    assert (ad["HasDocker"], ad["DockerEngine"]) == (True, name)
    assert ad["DockerRootless"] is rootless.ENGINES[engine["engine"]]
    assert ad["DockerVersion"].lower().startswith(f"{name.lower()} version ")
    # Root has control groups; an account where it was given some, which no account is under version 1.
    assert limits(engine) or ad["DockerRootless"]


@spec("DKR-12")
def test_a_rootless_engine_is_found_without_being_named(engine):
    place = "run/docker.sock" if "docker" in engine["engine"] else "run/podman/podman.sock"
    assert engine["address"].endswith(place)


@spec("DKR-13")
def test_a_job_has_no_rights_and_its_files_are_the_startds(engine):
    """Inside it is root where that is the startd's account outside, else nobody. The startd can send what it wrote, and
    remove it: nothing was left."""
    job = engine["walls"]
    assert (job["reason"], job["code"]) == ("exited", 3), job
    who = "0" if rootless.ENGINES[engine["engine"]] else NOBODY
    user, rights, no_new, seccomp, data, files = job["out"].split()
    assert (user, rights, no_new, seccomp) == (who, "CapEff:" + "0" * 16, "NoNewPrivs:1", "Seccomp:2")
    assert data == "input"
    assert int(files) > 0
    assert (job["err"], job["made"], job["updates"]) == ("bad\n", "x\n", True)


@pytest.mark.parametrize(
    ("job", "code", "words"),
    [
        ("no program", 6, "failed"),
        ("no image", 35, "docker_pull_policy"),
        ("no name", 35, "Not A Name"),
        ("no network", 6, "nowhere"),
    ],
)
def test_what_can_not_be_started_is_held(engine, job, code, words):
    end = engine[job]
    assert (end["reason"], end["hold"]) == ("hold", code), end
    assert words in end["why"]
    assert engine["still"], "the machine went on to offer the engine"


def test_a_missing_program_is_told_each_time(engine):
    assert engine["no program again"] == [6] * AGAIN


def test_a_job_is_asked_to_end_and_ended(engine):
    assert engine["asked"]["reason"] == engine["killed"]["reason"] == "killed"


def test_a_container_that_somebody_else_kills_is_run_again(engine):
    """Podman does not say what signal was sent, nor by whom."""
    end = engine["by somebody"]
    assert end["reason"] == "evicted", end


def test_a_job_that_kills_itself_ended_by_itself(engine):
    assert (engine["by itself"]["reason"], engine["by itself"]["code"]) == ("exited", 137)


def test_a_container_stands_still_and_goes_on(engine):
    """Without control groups its processes are stopped one by one."""
    assert engine["stood still"] == ("paused" if limits(engine) else "T")
    assert engine["went on"]["reason"] == "exited"


def test_what_a_job_uses_is_measured(engine):
    """Without control groups the engine would tell of the whole machine."""
    assert 0 < engine["measured"]["resident"] < 200 * 1024
    assert 0 < engine["measured"]["procs"] <= PROCESSES


def test_the_number_of_its_processes_is_limited(engine):
    """By a control group, by the engine's RLIMIT_NPROC, or by the startd's where Podman drops that."""
    assert (engine["many"]["reason"], engine["many"]["code"]) == ("exited", 2), engine["many"]
    assert "can't fork" in engine["many"]["err"]


@spec("TLS-18")
def test_credentials_are_in_memory_in_the_container_or_the_job_does_not_run(engine):
    """A startd that is an account may not mount, and puts none on the disk unless it is told to."""
    end = engine["credentials"]
    if rootless.ENGINES[engine["engine"]]:
        assert end["reason"] != "exited", end
        assert "ROOST_CREDENTIALS_ON_DISK" in end["why"]
        return
    assert (end["reason"], end["code"]) == ("exited", 0), end
    assert end["out"] == f"{OLD.decode()}tmpfs\n400\n{NEW.decode()}"
    assert "_CONDOR_CREDS=" in engine["inspected"]
    assert OLD.decode().strip() not in engine["inspected"]


def test_a_startd_that_comes_back_finds_its_container(engine):
    job = engine["adopted"]
    assert (job["reason"], job["code"], job["out"]) == ("exited", 5, "end\n"), job

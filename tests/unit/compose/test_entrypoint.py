"""What the image makes of its environment before a daemon starts."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def environment_after(**given: str) -> dict[str, str]:
    done = enter(**given)
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def enter(**given: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(ROOT / "compose" / "entrypoint.sh"), "env"]
    env = {"PATH": "/usr/bin:/bin", **given}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_urls_with_passwords_come_from_files(tmp_path):
    (tmp_path / "amqp").write_text("amqp://u:p@broker/\n")
    env = environment_after(ROOST_AMQP_URL_FILE=str(tmp_path / "amqp"))
    assert env["ROOST_AMQP_URL"] == "amqp://u:p@broker/"
    assert "ROOST_AMQP_URL_FILE" not in env
    assert "ROOST_REDIS_URL" not in env


def test_a_file_that_can_not_be_read_is_named(tmp_path):
    done = enter(ROOST_REDIS_URL_FILE=str(tmp_path / "absent"))
    assert done.returncode == 1
    assert f"ROOST_REDIS_URL_FILE is {tmp_path / 'absent'}" in done.stderr


def test_the_variables_of_htcondors_images_become_configuration():
    env = environment_after(CONDOR_HOST="cm", NUM_CPUS="4", MEMORY="2048", RESERVED_DISK="")
    assert env["_CONDOR_CONDOR_HOST"] == "cm"
    assert env["_CONDOR_NUM_CPUS"] == "4"
    assert env["_CONDOR_MEMORY"] == "2048"
    assert "_CONDOR_RESERVED_DISK" not in env


def test_condor_service_host_stands_in_for_condor_host():
    assert environment_after(CONDOR_SERVICE_HOST="svc")["_CONDOR_CONDOR_HOST"] == "svc"
    assert environment_after(CONDOR_SERVICE_HOST="svc", CONDOR_HOST="cm")["_CONDOR_CONDOR_HOST"] == "cm"


def test_one_of_several_startds_keeps_the_name_that_it_had_at_first(tmp_path):
    file = tmp_path / "name"
    first = environment_after(ROOST_NAME_FILE=str(file))["_CONDOR_FULL_HOSTNAME"]
    assert first == file.read_text().strip()
    assert first.startswith("startd-")
    file.write_text("startd-3f2a9c\n")  # made in another container
    again = environment_after(ROOST_NAME_FILE=str(file))
    assert again["_CONDOR_FULL_HOSTNAME"] == again["_CONDOR_HOSTNAME"] == "startd-3f2a9c"
    assert "_CONDOR_FULL_HOSTNAME" not in environment_after()

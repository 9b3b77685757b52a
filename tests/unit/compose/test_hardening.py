"""What every service of the compose pools is kept from, as the files say it; tests/security/test_image.py and
tests/integration/test_compose.py look at containers."""

import re

import pytest
import yaml

from shared.state import acl
from tests.compose_set_up import COMPOSE, Loader

#: They end when they have done their work, so nobody asks for their health.
ONE_SHOT = {"prepare", "functions"}
#: Makes files for others, without a network; it ends before any job runs.
ROOT = {"prepare": {"CHOWN", "DAC_OVERRIDE", "FOWNER"}}


def services() -> dict[str, dict]:
    """Those of compose.yaml, and of compose.ha.yaml with what they extend: "ha:<name>"."""
    first, second = (
        yaml.load((COMPOSE / name).read_text(), Loader)["services"] for name in ("compose.yaml", "compose.ha.yaml")
    )
    found = dict(first)
    for name, more in second.items():
        extended = more.get("extends")
        if extended is not None:
            assert extended["file"] == "compose.yaml"
        base = first[extended["service"] if extended else name]
        lists = {key: [*base.get(key, []), *more[key]] for key in ("volumes",) if key in more}
        found[f"ha:{name}"] = base | more | lists
    return found


ALL = services()
every = pytest.mark.parametrize("name", ALL)


def test_all_services_are_looked_at():
    assert {"prepare", "redis", "grafana", "startd", "ha:redis", "ha:sentinel3", "ha:gateway2"} <= set(ALL)


@every
def test_a_service_has_no_rights_that_it_does_not_need(name):
    service = ALL[name]
    plain = name.removeprefix("ha:")
    assert service["cap_drop"] == ["ALL"]
    assert set(service.get("cap_add", [])) == ROOT.get(plain, set())
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert (str(service["user"]).partition(":")[0] in ("0", "root")) == (plain in ROOT)
    assert not {"privileged", "devices", "pid", "ipc", "userns_mode"} & set(service)
    if plain in ROOT:
        assert service["network_mode"] == "none"
    else:
        assert "network_mode" not in service
        assert set(service["networks"]) == {"pool"}


@every
def test_a_service_can_not_use_the_machine_up(name):
    service = ALL[name]
    assert 0 < service["pids_limit"] <= 8192
    assert "max-size" in service["logging"]["options"]
    if "services.startd" not in service.get("command", []):
        assert service["mem_limit"] not in (0, None)


@every
def test_what_a_service_can_write_it_can_not_run(name):
    service = ALL[name]
    assert service["tmpfs"]
    for mount in service["tmpfs"]:
        path, _, options = mount.partition(":")
        assert path.startswith("/")
        assert {"noexec", "nosuid", "nodev"} <= set(options.split(",")), mount


@every
def test_a_service_tells_its_health(name):
    service = ALL[name]
    if name.removeprefix("ha:") in ONE_SHOT:
        assert service["restart"] == "no"
        assert service["healthcheck"] == {"disable": True}
    else:
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
        assert service["restart"] == "unless-stopped"


@every
def test_ports_are_open_to_this_machine_only_unless_its_owner_says_more(name):
    for port in ALL[name].get("ports", []):
        assert re.match(r"(127\.0\.0\.1|\$\{ROOST_GATEWAY_ADDRESS:-127\.0\.0\.1\}):", port)


@every
def test_an_image_can_be_named_by_digest(name):
    assert re.fullmatch(r"\$\{[A-Z]+_IMAGE:-[^}]+:[^}]+\}", ALL[name]["image"])


def test_what_our_image_is_made_of_can_be_named_by_digest():
    """Each FROM is a stage of the file or an argument, which compose hands on; nothing is copied from other images."""
    text = (COMPOSE / "Dockerfile").read_text()
    given = ALL["prepare"]["build"]["args"]
    stages, asked = set(), set()
    for line in text.splitlines():
        if base := re.match(r"FROM (\S+)(?: AS (\S+))?$", line):
            if base[1] not in stages:
                argument = re.fullmatch(r"\$\{(\w+)\}", base[1])
                assert argument, line
                asked.add(argument[1])
            stages.add(base[2])
        else:
            assert not re.match(r"\s*from\b", line, re.I), line
            assert set(re.findall(r"\bfrom=([^\s,]+)", line)) <= stages, line
    assert asked
    for name in asked:
        assert re.fullmatch(rf"\$\{{{name}:-[^}}]+:[^}}]+\}}", given[name])
        assert re.search(rf"^ARG {name}=\S+:\S+$", text.partition("FROM")[0], re.M)


@every
def test_only_who_needs_redis_is_told_of_it(name):
    command = ALL[name].get("command", [])
    module = next((str(word) for word in command if str(word).startswith("services.")), "")
    told = "ROOST_REDIS_URL_FILE" in (ALL[name].get("environment") or {})
    if module and not name.startswith("ha:"):
        assert told == (module.removeprefix("services.") in acl.RIGHTS)
        assert told == ("functions" in ALL[name]["depends_on"])

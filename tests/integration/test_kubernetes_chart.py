"""The Helm chart: rendered by Helm, read by the schemas of Kubernetes, and held to what the compose pool promises and
to what prepare really makes. No cluster runs here (docs/kubernetes.md)."""

import json
import re
import subprocess

import pytest
import yaml

from shared.config.knobs import KNOBS
from shared.state import acl
from tests import chart
from tests.chart import PREFIX, environment, of_kind, pods, render
from tests.compose_set_up import COMPOSE, load_for_kubernetes

#: How pools differ: the smallest, one without a single point of failure, and one whose servers are elsewhere.
POOLS = {
    "plain": {},
    "large": {
        "collectors": 3,
        "negotiators": 3,
        "schedds": 2,
        "gateways": 2,
        "rabbitmq": {"replicas": 3},
        "redis": {"replicas": 3},
        "defrag": True,
        "gangliad": True,
        "adstash": True,
        "startd": {"replicas": 50},
        "gateway": {"hosts": ["pool.example.org"], "ingress": {"enabled": True, "host": "roost.example.org"}},
        "networkPolicy": {"metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
        "imagePullSecrets": [{"name": "registry"}],
        "resourcesOf": {"schedd": {"limits": {"memory": "8Gi"}}},
    },
    "outside": {
        "rabbitmq": {
            "external": {
                "urls": "amqps://{user}:{password}@b1.example.org:5671/,amqps://{user}:{password}@b2.example.org:5671/",
                "api": "https://{user}:{password}@b1.example.org:15671",
            }
        },
        "redis": {"external": {"url": "redis+sentinel://{user}:{password}@s1.example.org:26379/roost/0"}},
        "networkPolicy": {"gatewayFrom": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]},
    },
}
#: The oldest that Chart.yaml takes, and the newest there are schemas of.
VERSIONS = ("1.25", "1.37")
SERVERS = {"rabbitmq", "redis", "sentinel"}


@pytest.fixture(scope="module", params=POOLS)
def pool(request):
    return request.param, render(POOLS[request.param])


def component(template):
    return template["metadata"]["labels"]["app.kubernetes.io/component"]


class Secrets:
    """A namespace's."""

    def __init__(self):
        self.written = {}

    def secret(self, name):
        return None

    def write(self, name, files, before):
        self.written[name] = files


@pytest.fixture
def prepared(pool, tmp_path, monkeypatch):
    """(prepare's module, file by key by Secret): what it makes where it runs as the chart says."""
    (container,) = of_kind(pool[1], "Job")[f"{PREFIX}prepare"]["spec"]["template"]["spec"]["containers"]
    settings = environment(container)
    module = load_for_kubernetes(tmp_path, monkeypatch, **settings)
    secrets = Secrets()
    module.run(secrets, settings["SECRET_PREFIX"])
    return module, secrets.written


def secrets_of(template):
    """(name, keys and where they appear)"""
    for volume in template["spec"].get("volumes", []):
        if "secret" in volume:
            source = volume["secret"]
            yield source["secretName"], {one["key"]: one["path"] for one in source["items"]}


def test_every_object_is_one_that_kubernetes_knows(pool):
    validate = chart.validator()
    for one in pool[1]:
        for version in VERSIONS:
            validate.validate(one, version, strict=True)


def test_helm_finds_nothing_to_say():
    done = subprocess.run(
        [str(chart.program("helm")), "lint", "--strict", str(chart.CHART)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"colectors": 2}, "colectors"),
        ({"rabbitmq": {"replicas": 2}}, "/rabbitmq/replicas"),
        ({"startd": {"resources": {"limits": {"cpu": None}}}}, "cpu"),
        ({"redis": {"external": {"url": "redis://elsewhere:6379/0"}}}, "/redis/external/url"),
        ({"configOf": {"sched": "A = 1"}}, "sched"),
        ({"gateway": {"ingress": {"enabled": True}}}, "gateway.ingress.host"),
        ({"rabbitmq": {"external": {"urls": "amqps://{user}:{password}@b:5671/"}}}, "rabbitmq.external.api"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(values, said):
    with pytest.raises(chart.Refused, match=re.escape(said)):
        render(values)


def test_a_container_has_no_rights_that_it_does_not_need(pool):
    for name, template in pods(pool[1]):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is (name == f"{PREFIX}prepare")
        assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & set(spec)
        assert all({"emptyDir", "secret", "configMap"} & set(volume) for volume in spec["volumes"]), name
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "memory" in container["resources"]["limits"], name


def test_prepare_makes_each_file_that_a_pod_mounts_and_none_mounts_anothers(pool, prepared):
    module, made = prepared
    holders = {}
    for name, template in pods(pool[1]):
        for secret, items in secrets_of(template):
            holders.setdefault(secret, []).append(name)
            assert set(items) <= set(made[secret]), name
            assert {key: str(module.path_of(key)) for key in items} == items
            if component(template) not in SERVERS:
                assert set(made[secret]) == set(items), name  # nothing that is made for it is left out
    assert all(len(names) == 1 for names in holders.values()), holders
    assert not {f"{PREFIX}authority", f"{PREFIX}roost"} & set(holders)


def test_prepare_may_touch_its_own_secrets_and_nothing_else(pool, prepared):
    (role,) = of_kind(pool[1], "Role").values()
    create, rest = role["rules"]
    assert (create["resources"], create["verbs"]) == (["secrets"], ["create"])
    assert (rest["resources"], rest["verbs"]) == (["secrets"], ["get", "update"])
    assert set(rest["resourceNames"]) == {*prepared[1], f"{PREFIX}consumers"}  # which there are not without consumers


def test_daemons_are_those_that_have_users(pool, prepared):
    wanted = {one.service: one for one in prepared[0].prepare.instances()}
    found = {}
    for name, template in pods(pool[1]):
        (container,) = template["spec"]["containers"]
        settings = environment(container)
        if "_CONDOR_FULL_HOSTNAME" in settings:
            found[name.removeprefix(PREFIX)] = (component(template), settings, container["args"])
    optional = {"defrag", "rooster", "gangliad", "adstash"}
    assert set(wanted) - optional <= set(found) <= set(wanted)
    for service, (role, settings, command) in found.items():
        assert wanted[service].role == role
        assert settings["_CONDOR_FULL_HOSTNAME"] == service
        assert ("ROOST_REDIS_URL_FILE" in settings) == (role in acl.RIGHTS)
        if role == "had":
            assert command[-2:] == ["-name", wanted[service].name]
    if len([name for name in found if name.startswith("negotiator")]) > 1:
        leading = {
            settings["_CONDOR_HAD_LIST"] for role, settings, _ in found.values() if role in ("had", "negotiator")
        }
        assert leading == {"negotiator:51450, negotiator2:51450, negotiator3:51450"}


def test_variables_are_knobs_that_there_are(pool):
    for _, template in pods(pool[1]):
        for container in template["spec"]["containers"]:
            names = {
                one["name"].removeprefix("_CONDOR_").lower()
                for one in container.get("env", [])
                if "_CONDOR_" in one["name"]
            }
            assert names <= set(KNOBS) | {"full_hostname", "hostname"}


def test_a_pool_reaches_its_servers_by_names_that_there_are(pool, prepared):
    name, objects = pool
    services = of_kind(objects, "Service")
    sets = of_kind(objects, "StatefulSet")
    mine = prepared[1][f"{PREFIX}collector"]
    hosts = set(re.findall(r"[@,]([^:/,@]+):", f"{mine['amqp_url']} {mine['redis_url']}")) - {"amqp", "amqps"}
    if name == "outside":
        assert hosts == {"b1.example.org", "b2.example.org", "s1.example.org"}
        assert not {f"{PREFIX}rabbitmq", f"{PREFIX}redis"} & (set(services) | set(sets))
        return
    for host in hosts:
        pod, _, service = host.rpartition(".")
        assert service in services, host
        if pod:  # one pod of a StatefulSet, by a service without an address of its own
            owner, _, ordinal = pod.rpartition("-")
            assert sets[owner]["spec"]["serviceName"] == service
            assert int(ordinal) < sets[owner]["spec"]["replicas"]
            assert services[service]["spec"]["clusterIP"] == "None"


def test_services_find_the_pods_that_listen(pool):
    templates = [template for _, template in pods(pool[1])]
    sets = of_kind(pool[1], "StatefulSet")
    for name, service in of_kind(pool[1], "Service").items():
        selector = dict(service["spec"]["selector"])
        if pod := selector.pop("statefulset.kubernetes.io/pod-name", ""):
            owner, _, ordinal = pod.rpartition("-")
            assert int(ordinal) < sets[owner]["spec"]["replicas"]
        wanted = selector.items()
        found = [one for one in templates if wanted <= one["metadata"]["labels"].items()]
        assert found, name
        for port in service["spec"]["ports"]:
            offered = [p["name"] for one in found for c in one["spec"]["containers"] for p in c.get("ports", [])]
            assert port["targetPort"] in offered, name


def test_policies_refuse_what_no_daemon_needs(pool):
    policies = of_kind(pool[1], "NetworkPolicy")
    roles = {component(template) for _, template in pods(pool[1])} - {"prepare", "functions"}
    covered = {one["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for one in policies.values()}
    assert roles <= covered

    def admitted(role, port):
        for rule in policies[f"{PREFIX}{role}"]["spec"]["ingress"]:
            if port in [one["port"] for one in rule["ports"]]:
                for peer in rule.get("from", [{}]):
                    for expression in peer.get("podSelector", {}).get("matchExpressions", []):
                        yield from expression["values"]

    users = (set(acl.RIGHTS) - {"rooster"}) | {"functions", "sentinel"}
    assert set(admitted("redis", 6379)) == users | {"redis"}
    assert set(admitted("sentinel", 26379)) == users
    assert set(admitted("rabbitmq", 15672)) == {"registrar"}
    assert "startd" not in {*admitted("redis", 6379), *admitted("rabbitmq", 25672)}
    egress = policies[f"{PREFIX}startd"]["spec"]["egress"]
    assert "0.0.0.0/0" not in json.dumps([rule for rule in egress if "ports" in rule])


def test_the_brokers_settings_are_those_of_compose(pool):
    maps = of_kind(pool[1], "ConfigMap")
    if pool[0] == "outside":
        assert set(maps) == {f"{PREFIX}config"}
        return
    assert maps[f"{PREFIX}rabbitmq"]["data"]["20-roost.conf"] == (COMPOSE / "rabbitmq" / "20-roost.conf").read_text()
    assert maps[f"{PREFIX}redis"]["data"]["redis.conf"] == (COMPOSE / "redis" / "redis.conf").read_text()
    if pool[0] == "large":
        for name in ("ha.conf", "ha.sh"):
            assert maps[f"{PREFIX}redis"]["data"][name] == (COMPOSE / "redis" / name).read_text()
        ours = settings_of(maps[f"{PREFIX}rabbitmq"]["data"]["30-cluster.conf"])
        theirs = settings_of((COMPOSE / "rabbitmq" / "30-cluster.conf").read_text())
        names = [name for name in theirs if ".nodes." in name]
        assert [ours.pop(name) for name in names] == [f"rabbit@{PREFIX}rabbitmq-{n}" for n in range(3)]
        assert ours == {name: value for name, value in theirs.items() if name not in names}


def settings_of(text):
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(re.split(r"\s*=\s*", line, maxsplit=1) for line in lines)


def test_images_are_those_of_compose():
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    values = yaml.safe_load((chart.CHART / "values.yaml").read_text())
    for name in SERVERS & set(services):
        assert services[name]["image"].partition(":-")[2].rstrip("}") == values[name]["image"]
    found = {name: template["spec"]["containers"][0] for name, template in pods(render())}
    assert {one["image"] for name, one in found.items() if name.removeprefix(PREFIX) not in SERVERS} == {
        "roost/pool:latest"
    }

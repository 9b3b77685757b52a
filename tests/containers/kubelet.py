"""Pods of the Helm chart, started by a real Docker engine: as much of a kubelet as they need.

Each pod is a container with what its template says: user, groups, environment, command, ports, files of Secrets and
ConfigMaps, volumes, limits, no capabilities, a read-only file system. Services are names, in a network of Docker's, of
the containers behind them. What this can not show: scheduling, rolling updates, NetworkPolicies, and what a real API
server refuses.
"""

import base64
import contextlib
import os
import re
import secrets
import shutil
import socket
import ssl
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from docker.models.containers import Container
from docker.types import IPAMConfig, IPAMPool

from roost.client import Client
from shared.own_authority import OwnAuthority
from tests import chart
from tests.containers.engine import Engine
from tests.kubernetes_api import TOKEN, KubernetesApi
from tests.waiting import wait_until

READY_S = 240.0
_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_POD_NAME = "statefulset.kubernetes.io/pod-name"
#: Services' addresses are in its first half, those of other pods in its second.
NETWORK = "172.30.78"
POOL = IPAMPool(subnet=f"{NETWORK}.0/24", gateway=f"{NETWORK}.1", iprange=f"{NETWORK}.128/25")
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN = "/var/lib/roost/volume/spool/token"


def quantity(text: str) -> float:
    """A number of Kubernetes: cores, or bytes."""
    match = re.fullmatch(r"([0-9.]+)(m|Ki|Mi|Gi)?", str(text))
    assert match is not None, text
    number, unit = float(match[1]), match[2]
    return number / 1000 if unit == "m" else number * _UNITS.get(unit or "", 1)


class Kubelet:
    """A release that runs. url, token, ca: of its gateway. pods: their containers, by name."""

    def __init__(self, engine: Engine, values: dict[str, Any]) -> None:
        self.engine = engine
        self.objects = chart.render(values)
        self.name = f"roost-test-{secrets.token_hex(3)}"
        self.place = Path(tempfile.mkdtemp(prefix="roost-kubelet-"))
        self.place.chmod(0o755)
        self.pods: dict[str, Container] = {}
        self.url = self.token = ""
        self.ca = self.place / "pool-ca.pem"
        self.network = engine.client.networks.create(self.name, driver="bridge", ipam=IPAMConfig(pool_configs=[POOL]))
        self.address = POOL["Gateway"]
        self.api = self._api()
        self._templates: dict[str, dict[str, Any]] = {}

    @classmethod
    @contextlib.contextmanager
    def up(cls, engine: Engine, values: dict[str, Any]) -> Iterator[Self]:
        """Render the chart, run prepare as Helm does, start everything at once, wait until it is ready."""
        pool = cls(engine, values)
        try:
            with pool.api:
                pool.prepare()
            pool.start()
            yield pool
        finally:
            pool.down()

    def _api(self) -> KubernetesApi:
        """An API server that pods reach and believe, and files of the account by which they do."""
        account = self.place / "account"
        account.mkdir()
        authority = OwnAuthority(account / "ca.crt", self.place / "ca.key")
        authority.ensure_server("api", [self.address], time.time())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.server_file("api"))
        (account / "token").write_text(TOKEN)
        (account / "namespace").write_text(chart.NAMESPACE)
        for path in account.iterdir():
            path.chmod(0o644)
        return KubernetesApi(chart.NAMESPACE, address=self.address, context=context)

    # --- pods

    def prepare(self) -> None:
        """Run the hook to its end. RuntimeError with what it said, if it fails."""
        template = chart.of_kind(self.objects, "Job")[f"{chart.PREFIX}prepare"]["spec"]["template"]
        environment = {"KUBERNETES_SERVICE_HOST": self.address, "KUBERNETES_SERVICE_PORT": str(self.api.port)}
        container = self._create("prepare", template, {}, environment)
        container.start()
        done = container.wait(timeout=READY_S)
        said = container.logs().decode()
        container.remove()
        if done["StatusCode"]:
            raise RuntimeError(said)

    def start(self) -> None:
        for name, one in chart.of_kind(self.objects, "StatefulSet").items():
            for ordinal in range(one["spec"]["replicas"]):
                self._templates[f"{name}-{ordinal}"] = one
        for name, one in chart.of_kind(self.objects, "Job").items():
            if one["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure":
                self._templates[name] = one
        for pod in self._templates:
            self.create(pod)
        self.wait_ready(*self._templates)
        gateway = self.pods[f"{chart.PREFIX}gateway-0"]
        gateway.reload()
        bound = gateway.attrs["NetworkSettings"]["Ports"]["9680/tcp"][0]
        self.url = f"https://127.0.0.1:{bound['HostPort']}"
        self.ca.write_bytes(self.secret(f"{chart.PREFIX}gateway")["ca.pem"])
        self.token = gateway.exec_run(["cat", _TOKEN]).output.decode().strip()

    def create(self, pod: str) -> None:
        """Start a pod, also one that was deleted: what it claimed is still there."""
        one = self._templates[pod]
        claims = {claim["metadata"]["name"]: claim for claim in one["spec"].get("volumeClaimTemplates", [])}
        container = self._create(pod, one["spec"]["template"], claims, {})
        container.start()
        self.pods[pod] = container

    def delete(self, pod: str, *, grace_s: int = 0) -> None:
        """Without grace: as when its node is lost."""
        container = self.pods.pop(pod)
        if grace_s:
            container.stop(timeout=grace_s)
        container.remove(force=True)

    def wait_ready(self, *pods: str) -> None:
        for pod in pods:
            self.wait(lambda name=pod: self.ready(name), pod, pod)

    def wait(self, condition: Callable[[], bool], what: str, pod: str) -> None:
        """Until it is true; else TimeoutError, with what this pod said last."""
        try:
            wait_until(condition, READY_S, what)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.pods[pod].logs(tail=40).decode(errors='replace')}") from None

    def ready(self, pod: str) -> bool:
        """What its readiness probe says; of a job, whether it is done."""
        container = self.pods[pod]
        container.reload()
        (described,) = self._templates[pod]["spec"]["template"]["spec"]["containers"]
        probe = described.get("readinessProbe")
        if probe is None:
            return container.attrs["State"]["Status"] == "exited" and container.attrs["State"]["ExitCode"] == 0
        if container.attrs["State"]["Status"] != "running":
            return False
        if "exec" in probe:
            return container.exec_run(probe["exec"]["command"]).exit_code == 0
        address = container.attrs["NetworkSettings"]["Networks"][self.name]["IPAddress"]
        ports = {port["name"]: port["containerPort"] for port in described["ports"]}
        try:
            if "tcpSocket" in probe:
                socket.create_connection((address, ports[probe["tcpSocket"]["port"]]), 5).close()
                return True
            wanted = probe["httpGet"]
            with urllib.request.urlopen(
                f"http://{address}:{ports[wanted['port']]}{wanted['path']}", timeout=5
            ) as answer:
                return 200 <= answer.status < 400
        except OSError:
            return False

    def secret(self, name: str) -> dict[str, bytes]:
        return {key: base64.b64decode(value) for key, value in self.api.secrets[name]["data"].items()}

    def client(self) -> Client:
        return Client(self.url, self.token, ca_file=str(self.ca))

    def down(self) -> None:
        for container in self.engine.client.containers.list(all=True, filters={"label": f"roost.test={self.name}"}):
            container.remove(force=True)
        self.network.remove()
        shutil.rmtree(self.place, ignore_errors=True)

    # --- what a container is made of

    def _create(
        self, pod: str, template: dict[str, Any], claims: dict[str, Any], environment: dict[str, str]
    ) -> Container:
        spec = template["spec"]
        (one,) = spec["containers"]
        secured, mine = spec["securityContext"], one["securityContext"]
        assert mine["readOnlyRootFilesystem"]
        assert not mine["allowPrivilegeEscalation"]
        limits = one["resources"]["limits"]
        endpoint = self.engine.client.api.create_endpoint_config(
            aliases=self._names(pod, template), ipv4_address=self.address_of(pod)
        )
        return self.engine.client.containers.create(
            self.engine.image(one["image"]) if not one["image"].startswith("roost/") else one["image"],
            entrypoint=one["command"],
            command=one.get("args", []),
            name=f"{self.name}-{pod}",
            hostname=pod,
            labels={"roost.test": self.name},
            environment={**self._environment(pod, one), **environment},
            user=f"{secured['runAsUser']}:{secured['runAsGroup']}",
            group_add=[str(secured["fsGroup"])],
            read_only=True,
            cap_drop=mine["capabilities"]["drop"],
            security_opt=["no-new-privileges:true"],
            mem_limit=int(quantity(limits["memory"])),
            volumes=self._volumes(pod, spec, one, claims),
            ports={"9680/tcp": ("127.0.0.1", None)} if any(p["name"] == "https" for p in one.get("ports", [])) else {},
            restart_policy={"Name": "no" if spec.get("restartPolicy") == "Never" else "on-failure"}
            if "restartPolicy" in spec
            else {"Name": "always"},
            network=self.name,
            networking_config={self.name: endpoint},
            detach=True,
        )

    def address_of(self, pod: str) -> str | None:
        """A pod that a Service of its own selects has the address that this would have in a cluster, for ever."""
        owners = [
            name
            for name, service in chart.of_kind(self.objects, "Service").items()
            if service["spec"]["selector"].get(_POD_NAME) == pod
        ]
        return f"{NETWORK}.{10 + sorted(chart.of_kind(self.objects, 'Service')).index(owners[0])}" if owners else None

    def _names(self, pod: str, template: dict[str, Any]) -> list[str]:
        """By which others find it: its own, and those of the Services that select it."""
        labels = {**template["metadata"]["labels"], _POD_NAME: pod}.items()
        found = [pod]
        for name, service in chart.of_kind(self.objects, "Service").items():
            if service["spec"]["selector"].items() <= labels:
                found += [name, f"{pod}.{name}"]
        return found

    def _environment(self, pod: str, one: dict[str, Any]) -> dict[str, str]:
        found = chart.environment(one)
        for variable in one.get("env", []):
            source = variable.get("valueFrom", {})
            if "fieldRef" in source:
                assert source["fieldRef"]["fieldPath"] == "metadata.name"
                found[variable["name"]] = pod
            elif "resourceFieldRef" in source:
                kind, _, which = source["resourceFieldRef"]["resource"].partition(".")
                amount = quantity(one["resources"][kind][which]) / quantity(source["resourceFieldRef"]["divisor"])
                found[variable["name"]] = str(-(-amount // 1)).removesuffix(".0")
        return found

    def _volumes(
        self, pod: str, spec: dict[str, Any], one: dict[str, Any], claims: dict[str, Any]
    ) -> dict[str, dict[str, str]]:
        """Directories of this machine, laid out as a kubelet does: files of Secrets and ConfigMaps are root's and for
        the group of the pod to read, what can be written is root's and the group's."""
        group = spec["securityContext"]["fsGroup"]
        described = {volume["name"]: volume for volume in spec["volumes"]} | {name: {"claim": {}} for name in claims}
        found = {}
        for mount in one["volumeMounts"]:
            volume = described[mount["name"]]
            kept = "claim" in volume
            place = self.place / ("claims" if kept else "pods") / pod / mount["name"]
            if "secret" in volume:
                data = self.secret(volume["secret"]["secretName"])
                items = {item["path"]: data[item["key"]] for item in volume["secret"]["items"]}
                self._lay_out(place, items, group, volume["secret"]["defaultMode"])
            elif "configMap" in volume:
                texts = chart.of_kind(self.objects, "ConfigMap")[volume["configMap"]["name"]]["data"]
                given = volume["configMap"].get("items") or [{"key": key, "path": key} for key in texts]
                self._lay_out(place, {item["path"]: texts[item["key"]].encode() for item in given}, group, 0o644)
            else:
                place.mkdir(parents=True, exist_ok=True)
                os.chown(place, 0, group)
                place.chmod(0o2775 if kept else 0o2777)
            source = place / mount["subPath"] if "subPath" in mount else place
            found[str(source)] = {"bind": mount["mountPath"], "mode": "ro" if mount.get("readOnly") else "rw"}
        if spec["automountServiceAccountToken"]:
            found[str(self.place / "account")] = {"bind": _ACCOUNT, "mode": "ro"}
        return found

    def _lay_out(self, place: Path, files: dict[str, bytes], group: int, mode: int) -> None:
        for name, data in files.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_bytes(data)
            os.chown(path, 0, group)
            path.chmod(mode)

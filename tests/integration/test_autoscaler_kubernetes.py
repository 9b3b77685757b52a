"""The autoscaler's StatefulSet, by the real kubectl and as much of Kubernetes' API as a scale takes."""

import importlib.util
from pathlib import Path

import pytest

from roost import ClientError
from tests import chart
from tests.json_server import serving

PATH = "/apis/apps/v1/namespaces/jobs/statefulsets/pool-startd/scale"


def refusal(code, message):
    return code, {"kind": "Status", "status": "Failure", "message": message, "code": code}


class Scale:
    """replicas: as it is now; meanwhile: what somebody else sets between a read and a write."""

    def __init__(self, replicas):
        self.replicas, self.version, self.meanwhile = replicas, 1, None

    def answer(self, method, path, headers, body):
        if path != PATH:
            return refusal(404, f"no {path}")
        if method == "PUT":
            if self.meanwhile is not None:
                self.replicas, self.version, self.meanwhile = self.meanwhile, self.version + 1, None
            if body["metadata"]["resourceVersion"] != str(self.version):
                message = "the object has been modified"
                return 409, {
                    "kind": "Status",
                    "status": "Failure",
                    "message": message,
                    "reason": "Conflict",
                    "code": 409,
                }
            self.replicas, self.version = body["spec"]["replicas"], self.version + 1
        return 200, {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {"name": "pool-startd", "namespace": "jobs", "resourceVersion": str(self.version)},
            # As Kubernetes says it, nought is left out.
            "spec": {"replicas": self.replicas} if self.replicas else {},
            "status": {"replicas": self.replicas},
        }


@pytest.fixture
def scale():
    return Scale(2)


@pytest.fixture
def server(scale):
    with serving(scale.answer) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def kubectl(server, tmp_path):
    script = tmp_path / "kubectl"
    script.write_text(f'#!/bin/sh\nexec {chart.program("kubectl")} --server={server} --kubeconfig=/dev/null "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture
def module():
    file = Path(__file__).parents[2] / "examples" / "autoscaler" / "kubernetes.py"
    spec = importlib.util.spec_from_file_location("autoscaler_kubernetes", file)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_a_worker_is_a_replica_and_the_last_one_goes_first(scale, kubectl, module):
    workers = module.StatefulSet("pool-startd", "jobs", kubectl)
    assert workers.names() == {"pool-startd-0": True, "pool-startd-1": True}
    workers.start("pool-startd-2")
    assert scale.replicas == 3
    workers.start("pool-startd-2")  # again, as its answer may have been lost
    assert scale.replicas == 3
    with pytest.raises(ValueError, match="before pool-startd-2"):
        workers.stop("pool-startd-1")
    for ordinal in (2, 1, 0):
        workers.stop(f"pool-startd-{ordinal}")
    assert scale.replicas == 0
    assert workers.names() == {}


def test_what_somebody_else_has_set_is_not_overwritten(scale, kubectl, module):
    workers = module.StatefulSet("pool-startd", "jobs", kubectl)
    scale.meanwhile = 9
    with pytest.raises(ClientError, match="modified") as raised:
        workers.start("pool-startd-2")
    assert raised.value.retryable
    assert scale.replicas == 9


def test_a_set_that_is_not_there_and_a_kubectl_that_is_not_there_are_told(kubectl, module):
    with pytest.raises(ClientError, match="kubectl get --raw"):
        module.StatefulSet("other", "jobs", kubectl).names()
    with pytest.raises(ClientError, match="/nowhere/kubectl can not be run"):
        module.StatefulSet("pool-startd", "jobs", "/nowhere/kubectl").names()

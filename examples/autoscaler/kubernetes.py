"""Execution points as pods of the chart's StatefulSet (docs/kubernetes.md): its number of replicas is what changes.

Kubernetes starts and stops a StatefulSet's pods in order of their numbers, so the last one is always the one to go. It
is spoken to by `kubectl`, whose account needs to get and update the StatefulSet's scale.
"""

import json
import subprocess
from typing import Any

from roost import ClientError


class StatefulSet:
    """As `Workers` of autoscaler.py: pods of one StatefulSet. Raises ClientError for what kubectl refuses."""

    in_order = True
    first = 0

    def __init__(self, name: str, namespace: str, kubectl: str = "kubectl") -> None:
        self.name, self._namespace, self._kubectl = name, namespace, kubectl
        self._scale_path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}/scale"

    def names(self) -> dict[str, bool]:
        """The pods that there shall be. Kubernetes sees to it that each lives."""
        return {f"{self.name}-{ordinal}": True for ordinal in range(self._scale()["spec"].get("replicas", 0))}

    def start(self, name: str) -> None:
        self._set(max(self._ordinal(name) + 1, len(self.names())))

    def stop(self, name: str) -> None:
        """Raises ValueError for one that is not the last."""
        last = len(self.names()) - 1
        if self._ordinal(name) != last:
            raise ValueError(f"{name} can not go before {self.name}-{last}")
        self._set(last)

    def _ordinal(self, name: str) -> int:
        return int(name.removeprefix(f"{self.name}-"))

    def _scale(self) -> dict[str, Any]:
        return dict(json.loads(self._run("get", "--raw", self._scale_path)))

    def _set(self, replicas: int) -> None:
        """With the version that was read: what somebody else has set meanwhile is not overwritten."""
        scale = self._scale()
        scale["spec"] = {"replicas": replicas}
        self._run("replace", "--raw", self._scale_path, "-f", "-", given=json.dumps(scale))

    def _run(self, *arguments: str, given: str | None = None) -> str:
        command = [self._kubectl, "--request-timeout=10s", *arguments]
        try:
            done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        except OSError as error:
            raise ClientError(f"{self._kubectl} can not be run: {error}", "usage") from error
        if done.returncode:
            # The next look tries again: it was changed meanwhile, or the API server is away.
            raise ClientError(
                f"kubectl {' '.join(arguments[:3])}: {done.stderr.strip()}", "unavailable", retryable=True
            )
        return done.stdout

"""Releases of the chart by real Helm on a real API server."""

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.api import Api, Json, wait_until
from tests.controlplane.control_plane import ControlPlane
from tests.deploy.installing import ACCOUNTS, CHART, MARKS, MODES, NAMESPACE, SERVE, check_permission, rules, token
from tests.deploy.test_permissions import of
from tests.helm.binary import helm

CONFIGURATION = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
# What controllers make of what a release holds.
FOLLOWING = ("pods", "replicasets.apps", "persistentvolumeclaims", "endpointslices.discovery.k8s.io")
# What stays when a release is uninstalled: with its definition, every policy would be deleted.
KEPT = {
    f"customresourcedefinitions.apiextensions.k8s.io {plural}.cruise.io"
    for plural in ("rightsizingpolicies", "clusterrightsizingpolicies")
}


@dataclass(frozen=True)
class Cluster:
    """A separate control plane, because release names are unique in a cluster."""

    plane: ControlPlane
    admin: Api
    home: Path

    def helm(self, *arguments: str) -> str:
        """Run Helm, and return what it prints."""
        environment = {**os.environ, "HOME": str(self.home), "KUBECONFIG": str(self.plane.kubeconfig())}
        command = [str(helm()), *arguments, "--namespace", NAMESPACE]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install(self, mode: str) -> str:
        """Install the chart in a mode; there is no kubelet that would run its pods, hence nothing is waited for."""
        return self.helm("install", "cruise", str(CHART), "--create-namespace", "--set", f"mode={mode}")

    def upgrade(self, mode: str) -> str:
        """Say another mode, and nothing else."""
        return self.helm("upgrade", "cruise", str(CHART), "--reset-then-reuse-values", "--set", f"mode={mode}")

    def holds(self, mode: str) -> None:
        """Tell that the accounts have the rights of a mode, each this much and not a verb more."""
        held = MODES[: MODES.index(mode) + 1]
        wait_until(
            lambda: all(
                check_permission(self.admin, *mark) is (name in held) for name, marks in MARKS.items() for mark in marks
            ),
            f"cruise's accounts have what mode {mode} gives",
        )
        for account in ACCOUNTS if mode != "observe" else (SERVE,):
            api = self.plane.api(token=token(self.admin, account))
            for where in (NAMESPACE, "kube-system", "default"):
                assert rules(api, where) == of(account, mode, where)

    def there(self, kinds: Iterable[str]) -> set[str]:
        """The objects of cruise of some kinds, in all namespaces."""
        return {
            f"{kind} {one['metadata']['name']}"
            for kind in kinds
            for one in self.admin.items(kind, None, "app.kubernetes.io/name=cruise")
        }

    def webhooks(self) -> list[Json]:
        """The webhook configurations of cruise."""
        return self.admin.items(CONFIGURATION, None, "app.kubernetes.io/name=cruise")

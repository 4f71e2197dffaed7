"""The flags of each control plane server, and the files that they refer to."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.client_certificates import ClientFiles
from tests.controlplane.audit import WRITES, AuditLevel


@dataclass(frozen=True, slots=True)
class Ports:
    """The loopback ports of one control plane."""

    api_server: int
    etcd: int
    etcd_peers: int


@dataclass(frozen=True, slots=True)
class Flags:
    """What one control plane is started with besides its own; `feature_gates` go to all of Kubernetes' servers."""

    feature_gates: Mapping[str, bool]
    api_server: Sequence[str]
    controller_manager: Sequence[str]
    scheduler: Sequence[str]
    audit_level: AuditLevel

    @property
    def gates(self) -> list[str]:
        """The flag that sets the feature gates, if there are any."""
        stated = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(self.feature_gates.items()))
        return [f"--feature-gates={stated}"] if stated else []


def etcd_command(directory: Path, ports: Ports) -> list[str]:
    """Etcd that forgets nothing while it runs and needs to keep nothing afterwards."""
    clients, peers = f"http://127.0.0.1:{ports.etcd}", f"http://127.0.0.1:{ports.etcd_peers}"
    return [
        "etcd",
        f"--data-dir={directory / 'etcd'}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        "--quota-backend-bytes=8000000000",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
    ]


def api_server_command(directory: Path, ports: Ports, flags: Flags) -> list[str]:
    """The API server with RBAC, token users and an audit log."""
    certificates = directory / "certificates"
    policy = directory / "audit-policy.yaml"
    policy.write_text(yaml.safe_dump(_audit_policy(flags.audit_level)))
    return [
        "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={ports.api_server}",
        # Made by the server itself at its first start, and found again at the next. Its key signs tokens as well.
        f"--cert-dir={certificates}",
        f"--service-account-key-file={certificates / 'apiserver.key'}",
        f"--service-account-signing-key-file={certificates / 'apiserver.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={directory / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
        "--service-cluster-ip-range=10.96.0.0/16",
        # There is no address under which pods could reach it.
        "--endpoint-reconciler-type=none",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={directory / 'audit.log'}",
        "--audit-log-mode=blocking",
        "--audit-log-maxsize=100000",
        f"--admission-control-config-file={_admission_file(directory)}",
        # How it is known to kubelets, whose certificates it does not verify by default either.
        f"--kubelet-client-certificate={directory / 'kube-apiserver.crt'}",
        f"--kubelet-client-key={directory / 'kube-apiserver.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        *flags.gates,
        *flags.api_server,
    ]


def write_admission(directory: Path, client: ClientFiles) -> None:
    """Let the API server present a client certificate to any webhook that requests one."""
    config, kubeconfig = "apiserver.config.k8s.io/v1", directory / "webhooks.kubeconfig"
    user = {"client-certificate": str(client.certificate), "client-key": str(client.key)}
    stated = {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]}
    kubeconfig.write_text(yaml.safe_dump(stated))
    of_webhooks = {"apiVersion": config, "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": str(kubeconfig)}
    plugins = [{"name": "MutatingAdmissionWebhook", "configuration": of_webhooks}]
    document = {"apiVersion": config, "kind": "AdmissionConfiguration", "plugins": plugins}
    _admission_file(directory).write_text(yaml.safe_dump(document))


def _admission_file(directory: Path) -> Path:
    return directory / "admission.yaml"


def scheduler_command(directory: Path, kubeconfig: Path, flags: Flags) -> list[str]:
    """The scheduler with its defaults, unthrottled."""
    config = directory / "scheduler.yaml"
    stated = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 2000, "burst": 4000},
    }
    config.write_text(yaml.safe_dump(stated))
    return ["kube-scheduler", f"--config={config}", "--secure-port=0", *flags.gates, *flags.scheduler]


def controller_manager_command(kubeconfig: Path, flags: Flags) -> list[str]:
    """The controller manager with its defaults, unthrottled."""
    return [
        "kube-controller-manager",
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
        *flags.gates,
        *flags.controller_manager,
    ]


def kubeconfig_text(address: str, ca_file: Path, user: str, token: str) -> str:
    """A kubeconfig with one user."""
    cluster: dict[str, Any] = {"server": address, "certificate-authority": str(ca_file)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        "current-context": "test",
    }
    return json.dumps(config, indent=1)


def _audit_policy(level: AuditLevel) -> dict[str, Any]:
    """Writes at the requested level; reads without bodies, which may be a whole cluster each."""
    reads = "None" if level == "None" else "Metadata"
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            # Health, renewed by every node and controller every few seconds.
            {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/healthz*"]},
            {"level": "None", "namespaces": ["kube-node-lease"]},
            {"level": level, "verbs": sorted(WRITES)},
            {"level": reads},
        ],
    }

"""How kubelets are asked."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Access(StrEnum):
    """By which way: at the node's own address, or through the API server, which takes the right to nodes/proxy."""

    DIRECT = "direct"
    NODE_PROXY = "node-proxy"


class Endpoint(StrEnum):
    """What of a kubelet is read: `resource` is a small part of `cadvisor`, without pressure."""

    CADVISOR = "cadvisor"
    RESOURCE = "resource"


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """How kubelets are reached, and how much of them is asked at once.

    Their certificates are verified against `ca_file`, by default the cluster's own CA; with `insecure_tls` they are
    not, and whoever answers at a node's address gets cruise's token. `max_bytes` bounds one answer.
    """

    access: Access = Access.DIRECT
    endpoint: Endpoint = Endpoint.CADVISOR
    ca_file: Path | None = None
    insecure_tls: bool = False
    timeout_seconds: float = 10.0
    concurrency: int = 16
    max_bytes: int = 32 << 20
    step_seconds: int = 60
    kept_seconds: float = 900.0
    plausible: bool = True

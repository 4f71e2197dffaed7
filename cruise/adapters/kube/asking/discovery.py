"""What the API server can do, judged by what it serves: its version is for people to read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from cruise.adapters.kube.http.client import KubeClient
from cruise.errors import UNDECODABLE, NotFound, Refused, Unavailable

_POD_LEVEL_RESIZE = "InPlacePodLevelResourcesVerticalScaling"
# The groups of which something is read or written; older servers lack some.
_GROUPS = (
    "apps/v1",
    "autoscaling/v2",
    "batch/v1",
    "coordination.k8s.io/v1",
    "policy/v1",
)


@dataclass(frozen=True, slots=True)
class Discovery:
    """What is served: verbs by `group/version/resource`, such as `v1/pods/resize`.

    `pod_level_resize`: kubelets declare that they resize the requests of a pod as a whole.
    """

    version: tuple[int, int]
    git_version: str
    verbs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    pod_level_resize: bool = False

    @property
    def resizes_pods(self) -> bool:
        """Tell whether running pods can be resized at all."""
        return self.serves("v1/pods/resize", "patch")

    @property
    def evicts_pods(self) -> bool:
        """Tell whether pods can be evicted with regard to their budgets."""
        return self.serves("v1/pods/eviction", "create")

    def serves(self, resource: str, verb: str) -> bool:
        """Tell whether a resource is served with a verb, whatever RBAC allows."""
        return verb in self.verbs.get(resource, frozenset())


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    major: str = ""
    minor: str = ""
    git_version: str = ""


class _Resource(msgspec.Struct, frozen=True):
    name: str
    verbs: tuple[str, ...] = ()


class _Resources(msgspec.Struct, frozen=True):
    resources: tuple[_Resource, ...] = ()


class _NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    declared_features: tuple[str, ...] | None = None


class _Node(msgspec.Struct, frozen=True):
    status: _NodeStatus = _NodeStatus()


class _Nodes(msgspec.Struct, frozen=True):
    items: tuple[_Node, ...] | None = None


async def discover(client: KubeClient) -> Discovery:
    """Read what the server serves. Raises Refused, Throttled, Unavailable."""
    try:
        version = msgspec.json.decode(await client.get("/version"), type=_Version)
        verbs = _verbs("v1", await client.get("/api/v1"))
        for group in _GROUPS:
            try:
                verbs |= _verbs(group, await client.get(f"/apis/{group}"))
            except NotFound:
                # Not served at that version: nothing to add.
                continue
        return Discovery(
            version=(_number(version.major), _number(version.minor)),
            git_version=version.git_version,
            verbs=verbs,
            pod_level_resize=await _a_node_declares(client, _POD_LEVEL_RESIZE),
        )
    except UNDECODABLE as error:
        raise Unavailable(f"the API server's discovery documents cannot be read: {error}") from error


async def _a_node_declares(client: KubeClient, feature: str) -> bool:
    """Ask one node: nodes differ only while they are upgraded, and the server refuses what one of them cannot do."""
    try:
        nodes = msgspec.json.decode(await client.get("/api/v1/nodes", {"limit": "1"}), type=_Nodes)
    except Refused:
        return False
    return any(feature in (node.status.declared_features or ()) for node in nodes.items or ())


def _verbs(group: str, body: bytes) -> dict[str, frozenset[str]]:
    served = msgspec.json.decode(body, type=_Resources).resources
    return {f"{group}/{one.name}": frozenset(one.verbs) for one in served}


def _number(text: str) -> int:
    """Read a version's part; some providers write `33+`."""
    digits = re.match(r"\d+", text)
    return int(digits.group()) if digits else 0

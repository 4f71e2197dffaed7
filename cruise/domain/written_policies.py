"""The policy objects that cruise writes for users of its forms: one for each workload, namespace, and the cluster."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from cruise.domain.cluster import WorkloadRef
from cruise.domain.rightsizing_policies import PolicySelector, RightsizingPolicy

OWN_MANAGER = "cruise"
"""Who manages the policies that a form wrote: the value of a label, and the field manager."""
_LONGEST_NAME = 253
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_OBJECT_WORD = re.compile("[a-z0-9]+")
_ALL_NAMESPACES = "all-namespaces"


@dataclass(frozen=True, slots=True)
class PolicyScope:
    """What a written policy selects: one workload, otherwise all of one namespace, otherwise all of the cluster.

    That of a workload is a RightsizingPolicy, the others are ClusterRightsizingPolicies.
    """

    namespace: str = ""
    workload: WorkloadRef | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name of the object; the namespace is empty for a ClusterRightsizingPolicy."""
        if self.workload is not None:
            return self.namespace, get_workload_policy_name(self.workload.kind, self.workload.name)
        return "", f"namespace-{self.namespace}" if self.namespace else _ALL_NAMESPACES

    @property
    def title(self) -> str:
        """Kind, namespace and name of the object, as in messages."""
        return RightsizingPolicy(*self.key).title

    @property
    def selector(self) -> PolicySelector:
        """The selector of the object."""
        if self.workload is not None:
            return PolicySelector(frozenset({self.workload.kind}), frozenset({self.workload.name}))
        return PolicySelector(namespaces=frozenset({self.namespace} if self.namespace else ()))


@dataclass(frozen=True, slots=True)
class PolicyOwnership:
    """Who maintains a policy object in the cluster.

    `marks` are its labels and annotations, `spec_managers` the field managers of its spec.
    """

    uid: str
    resource_version: str
    marks: Mapping[str, str]
    spec_managers: frozenset[str]


def is_object_name(text: str) -> bool:
    """Return whether an object of any kind can have a name: a DNS subdomain."""
    return len(text) <= _LONGEST_NAME and _OBJECT_NAME.fullmatch(text) is not None


def get_workload_policy_name(kind: str, name: str) -> str:
    """Return the name of a workload's own policy object."""
    stated = f"{kind.lower()}-{name}"
    if is_object_name(stated):
        return stated
    # Names of runs have characters that names of objects may not have, such as those of Airflow's DAGs: without the
    # digest, `a_b` and `a-b` would share one object.
    digest = sha256(f"{kind}/{name}".encode()).hexdigest()[:8]
    words = _OBJECT_WORD.findall(stated.lower())
    return f"{'-'.join(words)[: _LONGEST_NAME - len(digest) - 1].rstrip('-')}-{digest}"

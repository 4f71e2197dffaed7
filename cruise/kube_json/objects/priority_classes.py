"""Priority classes, and what they give to pods that state no priority."""

from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern

from cruise.errors import BadInput
from cruise.kube_json.refusals import named
from cruise.kube_json.wire.storage_json import PriorityClassObject

_NEVER = "Never"
_POLICIES = (_NEVER, "PreemptLowerPriority")


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A priority, and whether pods of it preempt others; the default is for pods that name no class."""

    name: str
    priority: int
    preempts: bool = True
    is_default: bool = False


SYSTEM_CLASSES = {
    name: PriorityClass(name, priority)
    for name, priority in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000))
}
"""Classes that every cluster has."""


def decode_priority_class(document: PriorityClassObject) -> PriorityClass:
    """Return a priority class. Raises BadInput that names class, place and fix."""
    name = document.metadata.name
    with named("PriorityClass", None, name):
        preempts = read_preempting(document.preemption_policy, "preemptionPolicy")
    return PriorityClass(intern(name), document.value, preempts, bool(document.global_default))


def read_preempting(policy: str | None, place: str) -> bool:
    """Tell whether a policy lets a pod preempt. Raises BadInput that names `place`."""
    if policy and policy not in _POLICIES:
        raise BadInput(f'{place}: "{policy}" is no policy; write one of {", ".join(_POLICIES)}')
    return policy != _NEVER


def class_of(name: str, classes: Mapping[str, PriorityClass]) -> PriorityClass | None:
    """Return the class of a pod that states no priority: the one that it names, for an empty name the default."""
    if name:
        return classes.get(name) or SYSTEM_CLASSES.get(name)
    # Of several defaults the API server takes the one with the lowest priority.
    defaults = [one for one in classes.values() if one.is_default]
    return min(defaults, key=lambda one: (one.priority, one.name), default=None)

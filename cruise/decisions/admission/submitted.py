"""What a pod stated when it was submitted, before any mutation."""

from collections.abc import Sequence
from dataclasses import replace

from cruise.domain.actions import ContainerTarget
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import Container, Pod
from cruise.domain.original_resources import read_original_resources
from cruise.domain.pod_resources import get_qos_class, replace_spec_resources
from cruise.domain.resources import StatedResources


def get_submitted_requests(pod: Pod, sized: Sequence[Container]) -> list[StatedResources]:
    """Return the requests that the containers were submitted with."""
    originals = read_original_resources(pod)
    return [originals.get(one.name, (one.requests,))[0] for one in sized]


def get_submitted_memory_limits(pod: Pod, sized: Sequence[Container]) -> list[int | None]:
    """Return the memory limits in bytes that the containers were submitted with."""
    originals = read_original_resources(pod)
    return [originals.get(one.name, (one.requests, one.limits))[1].memory_bytes for one in sized]


def restore_submitted_pod(pod: Pod) -> Pod | None:
    """Return the pod as it was submitted, None if no mutation is recorded."""
    originals = read_original_resources(pod)
    if not originals:
        return None
    parts = [one for one in pod.resizable_parts if one.name in originals]
    restored = replace_spec_resources(pod, [ContainerTarget(one.name, one.role, *originals[one.name]) for one in parts])
    annotations = {name: value for name, value in pod.annotations.items() if name != ORIGINAL_RESOURCES}
    return replace(restored, qos=get_qos_class(restored), annotations=annotations)

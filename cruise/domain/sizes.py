"""A pod with other sizes written into its spec."""

from collections.abc import Sequence
from dataclasses import replace

from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Pod


def with_sizes(pod: Pod, targets: Sequence[ContainerTarget]) -> Pod:
    """Return the pod with the targets' requests and limits in place of its own."""
    named = {target.container: target for target in targets}
    containers = tuple(
        replace(container, requests=named[container.name].requests, limits=named[container.name].limits)
        if container.name in named
        else container
        for container in pod.containers
    )
    return replace(pod, containers=containers)

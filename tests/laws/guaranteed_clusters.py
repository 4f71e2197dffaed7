"""Random clusters of the other generators in which most pods are Guaranteed, and are sized."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from numpy.random import Generator

from cruise.domain.cluster import Container
from cruise.domain.policy import GuaranteedPolicy
from cruise.domain.resources import MEBIBYTE, StatedResources
from tests.laws.generators import GENERATORS
from tests.laws.mixed_clusters import draw_mixed_clusters
from tests.laws.random_clusters import DrawnCluster, DrawnUse, DrawnWorkload, draw_bool, draw_choice
from tests.laws.unusual_clusters import draw_unusual_clusters

_GENERATORS = (*GENERATORS.values(), draw_unusual_clusters, draw_mixed_clusters)
# Short ones keep every size from decreasing.
_HISTORIES = (timedelta(days=28), timedelta(days=28), timedelta(days=365))
_ANNOTATIONS = (
    {"cruise.io/guaranteed": "keep"},
    {"cruise.io/mode.app": "off"},
    {"cruise.io/resources.app": "cpu"},
    {"cruise.io/memory-limits": "never"},
)


def draw_guaranteed_clusters(draw: Generator) -> DrawnCluster:
    """Return a random cluster."""
    drawn = draw_choice(draw, _GENERATORS)(draw)
    workloads = [_make_guaranteed(draw, one) if draw_bool(draw, 0.7) else one for one in drawn.workloads]
    history = draw_choice(draw, _HISTORIES)
    policy = replace(drawn.policy, guaranteed=GuaranteedPolicy.RESIZE, memory_limit_history=history)
    return replace(drawn, workloads=workloads, policy=policy)


def _make_guaranteed(draw: Generator, one: DrawnWorkload) -> DrawnWorkload:
    template = one.workload.template
    containers = tuple(_equalize(draw, container, one.uses) for container in template.containers)
    annotations = {**template.annotations}
    if draw_bool(draw, 0.2):
        annotations |= draw_choice(draw, _ANNOTATIONS)
    template = replace(template, containers=containers, annotations=annotations)
    return replace(one, workload=replace(one.workload, template=template))


def _equalize(draw: Generator, container: Container, uses: Mapping[str, DrawnUse]) -> Container:
    """Return the container with limits that equal its requests; usage never exceeds a limit."""
    use = uses.get(container.name, DrawnUse(1, 1, MEBIBYTE, MEBIBYTE, MEBIBYTE))
    cpu, memory = draw.uniform(1, 2, size=2) ** 2
    amounts = StatedResources(
        max(container.requests.cpu_millicores or 1, round(use.cpu_peak * cpu)),
        max(container.requests.memory_bytes or 1, round(use.memory_7d_max * memory)),
    )
    return replace(container, requests=amounts, limits=amounts)

"""What a workload's sizes are as a VerticalPodAutoscaler's recommendation: a target between two bounds."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from cruise.decisions.exporting.templates import ContainerSizes, TemplateSizes
from cruise.domain.cluster import Snapshot
from cruise.domain.recommendations import ContainerRecommendation, Recommendation
from cruise.domain.resources import Resources

# With less history peaks of other days are missing.
_CONFIDENT_AFTER = timedelta(days=1)


def recommend(sizes: Iterable[TemplateSizes], snapshot: Snapshot, now: datetime) -> Iterator[Recommendation]:
    """Yield what is to be published: nothing about a workload that has a VerticalPodAutoscaler of somebody else's."""
    theirs = {
        (one.namespace, one.target) for one in snapshot.vertical_autoscalers if one.target and not one.is_published
    }
    taken = {(one.namespace, one.name) for one in snapshot.vertical_autoscalers if not one.is_published}
    for one in sizes:
        workload = snapshot.workloads.get((one.namespace, one.workload))
        if workload is None or not workload.uid or (one.namespace, one.workload) in theirs:
            continue
        since = [container.evidence.history_since for container in one.containers]
        confident = all(since) and max(since) <= (now - _CONFIDENT_AFTER).timestamp()
        containers = tuple([_of_container(container) for container in one.containers])
        found = Recommendation(one.namespace, one.workload, workload.uid, containers, confident, workload.api_version)
        if (found.namespace, found.name) not in taken:
            yield found


def worth_writing(
    wanted: Iterable[Recommendation], published: Mapping[tuple[str, str], Recommendation], most: int
) -> list[Recommendation]:
    """Return what differs enough from what was published, those first that never were; no more than `most`."""
    changed = [one for one in wanted if one.differs(published.get((one.namespace, one.name)))]
    return sorted(changed, key=lambda one: ((one.namespace, one.name) in published, one.namespace, one.name))[:most]


def _of_container(sizes: ContainerSizes) -> ContainerRecommendation:
    evidence, target = sizes.evidence, sizes.new_requests.resources
    usual = Resources(evidence.cpu_base_millicores, evidence.memory_base_bytes)
    peak_memory = max(evidence.memory_peak_bytes, evidence.oom_memory_bytes)
    largest = Resources(evidence.cpu_peak_millicores, max(peak_memory, evidence.memory_7d_max_bytes))
    return ContainerRecommendation(
        sizes.name,
        lower=usual.at_most(target),
        target=target,
        upper=largest.at_least(target),
        uncapped=Resources(evidence.cpu_peak_millicores, peak_memory),
    )

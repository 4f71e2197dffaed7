"""Pods that might come by plans which the packer does not look at, so that nothing is proved about these.

The packer knows plans at whose end every rule holds for all pods that came. kube-scheduler asks a pod's rules when it
binds that pod and never again: what comes later may break them. And it attaches a volume to a node once for all pods
there, where the packer counts it for each.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from cruise.decisions.packing.building import Built
from cruise.decisions.packing.building.obstacle import Obstacle
from cruise.decisions.scheduling.board import PodKey, key_of
from cruise.decisions.scheduling.claims import claims_of
from cruise.domain.cluster import Pod
from cruise.domain.unplaced import Unplaced


def open_by_other_plans(built: Built, unplaced: Iterable[Unplaced]) -> frozenset[PodKey]:
    """Return the pods that stay pending for rules which another order, or a shared volume, might leave unbroken."""
    pods = {key_of(pod): pod for pod in built.pods}
    found: set[PodKey] = set()
    known: dict[tuple[object, ...], bool] = {}
    for one in unplaced:
        pod = pods.get((one.namespace, one.pod))
        if pod is None:
            continue
        alike = (pod.namespace, id(pod.labels), id(pod.constraints), one.blocked_by)
        if alike not in known:
            known[alike] = _is_open(built, pod, one.blocked_by)
        if known[alike]:
            found.add(key_of(pod))
    return frozenset(found)


def _is_open(built: Built, pod: Pod, obstacles: Sequence[str]) -> bool:
    return (
        (Obstacle.TOPOLOGY_SPREAD in obstacles and _is_spread_beside_others(built, pod))
        or (Obstacle.AFFINITY in obstacles and _may_found(built, pod))
        or (Obstacle.ATTACH_LIMIT in obstacles and _shares_volumes(built, pod))
    )


def _is_spread_beside_others(built: Built, pod: Pod) -> bool:
    """Tell whether pods that may still come count for a spread that is not their own, this pod being one of the two."""
    for index, other in enumerate(built.pods):
        stays = other.node is not None and built.unmovable[index] is not None
        if stays or other.namespace != pod.namespace or other.constraints.spread == pod.constraints.spread:
            continue
        for holder, counted in ((pod, other), (other, pod)):
            spreads = holder.constraints.spread
            if any(one.selector is not None and one.selector.selects(counted.labels) for one in spreads):
                return True
    return False


def _may_found(built: Built, pod: Pod) -> bool:
    """Tell whether the pod may be the first of those that its affinity means, while others of them wait as well."""
    terms, labels_of = pod.constraints.affinity, built.snapshot.surroundings.namespace_labels

    def is_meant(other: Pod) -> bool:
        labels = labels_of.get(other.namespace, {})
        return all(term.means(other.namespace, other.labels, labels) for term in terms)

    meant = [other for other in built.pods if is_meant(other)] if is_meant(pod) else []
    return len(meant) > 1 and all(other.node is None for other in meant)


def _shares_volumes(built: Built, pod: Pod) -> bool:
    """Tell whether several pods use one volume of a driver that the pod needs as well."""
    surroundings = built.snapshot.surroundings
    drivers = {claim.driver for _, claim in claims_of(surroundings, pod) if claim is not None}
    users = Counter(
        volume
        for other in built.pods
        if other.constraints.claims
        for volume in {
            (claim.driver, claim.namespace, claim.volume or claim.name)
            for _, claim in claims_of(surroundings, other)
            if claim is not None and claim.driver in drivers
        }
    )
    return any(many > 1 for many in users.values())

"""What a preflight says about other autoscalers, of pods and of nodes: what each means for cruise, and what to do."""

from collections.abc import Iterator

from cruise.decisions.preflight.items import CheckItem, Level, count_of, named
from cruise.domain.cluster import PLAIN_KINDS, NodeAutoscaler, Snapshot, WorkloadRef

AREA = "objects"


def autoscaler_items(snapshot: Snapshot) -> Iterator[CheckItem]:
    """Yield the items."""
    yield _vertical(snapshot)
    yield _horizontal(snapshot)
    yield from _unknown_targets(snapshot)
    yield _of_nodes(snapshot)


def _vertical(snapshot: Snapshot) -> CheckItem:
    found = snapshot.vertical_autoscalers
    rivals = [f"{one.namespace}/{one.name} ({one.mode or 'no mode'})" for one in found if one.changes_pods]
    if not rivals:
        words = f"{count_of(found, 'VPA')}, none of which sizes pods" if found else "none"
        return CheckItem(AREA, "VPAs", Level.OK, words)
    verb = "sizes" if len(rivals) == 1 else "size"
    words = f"{len(rivals):,} of {count_of(found, 'VPA')} {verb} pods, which cruise leaves alone: {named(rivals)}"
    fix = 'to let cruise size these pods, delete the VPAs or set their updateMode to "Off": two would undo each other'
    return CheckItem(AREA, "VPAs", Level.WARN, words, fix)


def _horizontal(snapshot: Snapshot) -> CheckItem:
    targeting = [
        f"{one.namespace}/{one.name} ({', '.join(sorted(one.utilisation_of))} of {one.target})"
        for one in snapshot.autoscalers
        if one.utilisation_of
    ]
    if not targeting:
        words = f"{count_of(snapshot.autoscalers, 'HPA')}, none on utilisation" if snapshot.autoscalers else "none"
        return CheckItem(AREA, "HPAs", Level.OK, words)
    words = f"{count_of(targeting, 'HPA')} on utilisation, whose resource is left alone: {named(targeting)}"
    fix = "nothing has to be done; to have it sized too, let the HPA target an AverageValue or another metric"
    return CheckItem(AREA, "HPAs", Level.OK, words, fix)


def _unknown_targets(snapshot: Snapshot) -> Iterator[CheckItem]:
    """Yield what is left alone on doubt."""
    targets: set[tuple[str, WorkloadRef]] = {
        (one.namespace, one.target) for one in snapshot.autoscalers if one.utilisation_of
    }
    targets |= {
        (one.namespace, one.target)
        for one in snapshot.vertical_autoscalers
        if one.changes_pods and one.target is not None
    }
    unknown = [
        f"{namespace}/{ref}"
        for namespace, ref in sorted(
            targets - {target for target, found in snapshot.scales.items() if found is not None}
        )
        if ref.kind not in PLAIN_KINDS and (namespace, ref) not in snapshot.unreadable_scales
    ]
    if snapshot.unreadable_scales:
        unreadable = [
            f"{namespace}/{ref} ({why})" for (namespace, ref), why in sorted(snapshot.unreadable_scales.items())
        ]
        words = (
            "what an autoscaler acts on is left alone for pods that may be theirs (of a namespace where none is known)"
        )
        fix = "grant get on */scale, as deploy/rbac does, and see that the scale subresource of the kind has a selector"
        found = f"{count_of(unreadable, 'scale')} cannot be read: {named(unreadable)}"
        yield CheckItem(AREA, "scales", Level.WARN, f"{found}; {words}", fix)
    if unknown:
        words = f"the pods of {count_of(unknown, 'target')} are not known, and all that may be theirs are left alone"
        fix = "see that the kind has a scale subresource with a selector, and that cruise may get it (deploy/rbac)"
        yield CheckItem(AREA, "targets", Level.WARN, f"{words}: {named(unknown)}", fix)


def _of_nodes(snapshot: Snapshot) -> CheckItem:
    match snapshot.node_autoscaler:
        case NodeAutoscaler.KARPENTER:
            name = "Karpenter"
        case NodeAutoscaler.CLUSTER_AUTOSCALER:
            name = "cluster-autoscaler"
        case None:
            words = "none seen: what cruise adds to a new pod ends at the largest node that there is"
            return CheckItem(AREA, "node autoscaler", Level.OK, words)
    words = f"{name}: what cruise adds to a new pod ends at the largest node seen; an evicted pod may get a new node"
    return CheckItem(AREA, "node autoscaler", Level.OK, words)

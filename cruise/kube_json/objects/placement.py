"""Where pods may run: node selectors, required node affinity, taints and tolerations."""

from dataclasses import dataclass, field

from cruise.domain.scheduling import ANYWHERE, Operator, Placement, Taint, TaintEffect, Toleration
from cruise.errors import BadInput
from cruise.kube_json.objects.selectors import read_node_terms
from cruise.kube_json.objects.shared_values import SharedValues
from cruise.kube_json.wire import object_json, pod_json


@dataclass(frozen=True, slots=True)
class PlacementReader:
    """Reads placements; equal ones are one object."""

    _known: SharedValues[tuple[object, ...], Placement] = field(default_factory=SharedValues)

    def read(self, spec: pod_json.PodSpec) -> Placement:
        """Return where a pod may go. Raises BadInput that names the place within the pod."""
        node_affinity = spec.affinity.node_affinity if spec.affinity else None
        required = node_affinity.required_during_scheduling_ignored_during_execution if node_affinity else None
        selector = tuple(spec.node_selector.items()) if spec.node_selector else ()
        if not selector and required is None and not spec.tolerations:
            return ANYWHERE
        key = (selector, required, spec.tolerations)
        placement = self._known.get(key)
        if placement is None:
            terms = None if required is None else read_node_terms(required, "spec.affinity.nodeAffinity")
            tolerations = [_toleration(toleration) for toleration in spec.tolerations or ()]
            read = Placement(
                node_selector=tuple(sorted(selector)),
                terms=terms,
                tolerations=tuple(toleration for toleration in tolerations if toleration is not None),
            )
            placement = self._known.keep(key, read)
        return placement


def _toleration(toleration: pod_json.Toleration) -> Toleration | None:
    """Read a toleration; None for one by an operator that cannot be judged here, which then tolerates nothing."""
    if toleration.operator not in (None, "", "Equal", "Exists"):
        return None
    return Toleration(
        key=toleration.key or "",
        exists=toleration.operator == "Exists",
        value=toleration.value or "",
        effect=_effect(toleration.effect, "spec.tolerations") if toleration.effect else None,
    )


def _effect(effect: str, place: str) -> TaintEffect:
    try:
        return TaintEffect(effect)
    except ValueError as error:
        raise BadInput(f'{place}: "{effect}" is no effect; write one of {", ".join(TaintEffect)}') from error


def pinned_node(placement: Placement) -> str | None:
    """Return the one node that a placement names, as a DaemonSet's pods do before they are bound; None for others."""
    if placement.terms is None or len(placement.terms) != 1:
        return None
    for field_requirement in placement.terms[0].fields:
        if field_requirement.operator is Operator.IN and len(field_requirement.values) == 1:
            return field_requirement.values[0]
    return None


def read_taints(taints: tuple[object_json.NodeTaint, ...] | None, place: str = "spec.taints") -> tuple[Taint, ...]:
    """Read a node's taints. Raises BadInput that names the place."""
    return tuple(Taint(taint.key, taint.value or "", _effect(taint.effect, place)) for taint in taints or ())

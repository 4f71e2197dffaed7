"""How much of a pod in creation is read: a pod of a thousand times the usual size is no reason to keep others waiting.

The API server validates pods only after webhooks have seen them, so a namespace's user may send anything.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cruise.errors import BadInput
from cruise.kube_json.wire.pod_json import PodObject, PodSpec, Selector

# Shorter texts have few elements, whatever is in them.
_SHORT_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class ReviewBounds:
    """The most that a review may have, of each; what has more is answered unchanged.

    `elements` are those of all lists and objects together, `terms` what says where the pod may run: terms, their
    expressions and the values of these. Labels count as annotations.
    """

    review_bytes: int = 1 << 20
    elements: int = 10_000
    containers: int = 100
    terms: int = 1_000
    annotations: int = 1_000
    tolerations: int = 200


class TooMuch(BadInput):
    """More than is read; `reason` is the word that it is counted under."""

    def __init__(self, reason: str, found: str) -> None:
        super().__init__(f"it has {found}, of which fewer are read")
        self.reason = reason


def check_elements(review: bytes, bounds: ReviewBounds) -> None:
    """See that reading a review takes little time. Raises TooMuch."""
    # Of two elements in a row each but the last has a comma; those in texts count too, which does no harm.
    if len(review) > _SHORT_BYTES and review.count(b",") > bounds.elements:
        raise TooMuch("too-large", f"over {bounds.elements} elements")


def check_pod(pod: PodObject, bounds: ReviewBounds) -> None:
    """See that deciding on a pod takes little time. Raises TooMuch."""
    spec, metadata = pod.spec, pod.metadata
    if len(spec.containers) + len(spec.init_containers or ()) > bounds.containers:
        raise TooMuch("too-many-containers", f"over {bounds.containers} containers")
    if len(metadata.annotations or ()) + len(metadata.labels or ()) > bounds.annotations:
        raise TooMuch("too-many-annotations", f"over {bounds.annotations} annotations and labels")
    if len(spec.tolerations or ()) > bounds.tolerations:
        raise TooMuch("too-many-tolerations", f"over {bounds.tolerations} tolerations")
    if _exceeds(_terms(spec), bounds.terms):
        raise TooMuch("too-many-affinity-terms", f"over {bounds.terms} affinity terms, expressions and values")


def _exceeds(counts: Iterable[int], most: int) -> bool:
    total = 0
    for count in counts:
        total += count
        if total > most:
            return True
    return False


def _terms(spec: PodSpec) -> Iterator[int]:
    yield len(spec.node_selector or ())
    for constraint in spec.topology_spread_constraints or ():
        yield 1 + len(constraint.match_label_keys or ())
        yield from _expressions(constraint.label_selector)
    if spec.affinity is None:
        return
    of_nodes = spec.affinity.node_affinity
    required = of_nodes.required_during_scheduling_ignored_during_execution if of_nodes is not None else None
    for term in required.node_selector_terms if required is not None else ():
        yield 1
        for expression in (*(term.match_expressions or ()), *(term.match_fields or ())):
            yield 1 + len(expression.values or ())
    for of_pods in (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity):
        for beside in (
            of_pods.required_during_scheduling_ignored_during_execution if of_pods is not None else ()
        ) or ():
            yield 1 + len(beside.namespaces or ())
            yield len(beside.match_label_keys or ()) + len(beside.mismatch_label_keys or ())
            yield from _expressions(beside.label_selector)
            yield from _expressions(beside.namespace_selector)


def _expressions(selector: Selector | None) -> Iterator[int]:
    if selector is not None:
        yield len(selector.match_labels or ())
        yield from (1 + len(expression.values or ()) for expression in selector.match_expressions or ())

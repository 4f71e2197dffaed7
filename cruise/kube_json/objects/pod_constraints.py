"""Decode pod affinity, topology spread, host ports and volumes of pods, as kube-scheduler reads them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import intern

from cruise.domain.scheduling import (
    UNCONSTRAINED,
    HostPort,
    LabelRequirement,
    LabelSelector,
    PodAffinityTerm,
    PodConstraints,
    SelectorOperator,
    TopologySpreadConstraint,
)
from cruise.errors import BadInputError
from cruise.kube_json.objects.containers import SharedValues
from cruise.kube_json.objects.scheduling import read_selector
from cruise.kube_json.wire import pod_json

_PROTOCOLS = ("TCP", "UDP", "SCTP")
_ANY_ADDRESS = "0.0.0.0"
_MAXIMUM_PORT = 65535
_POLICIES = ("Honor", "Ignore")
_NEGATIVE = ("NotIn", "DoesNotExist")
_RESTART_ALL = "RestartAllContainers"
_DISKS = ("gce_persistent_disk", "aws_elastic_block_store", "azure_disk", "cinder", "rbd", "iscsi")
# Pods with generic ephemeral volumes are all different; only the latest are kept, for replicas with shared claims.
_CACHE_SIZE = 1024

_Ports = tuple[HostPort, ...]
_Names = tuple[str, ...]
_Terms = tuple[pod_json.PodAffinityTermJson, ...]


@dataclass(frozen=True, slots=True)
class PodConstraintDecoder:
    """Decodes constraints; equal ones are one object."""

    _known: SharedValues[tuple[object, ...], PodConstraints] = field(default_factory=SharedValues)
    _cache: dict[tuple[int, _Names, _Names, _Names], tuple[PodConstraints, PodConstraints]] = field(
        default_factory=dict
    )

    def read(self, spec: pod_json.PodSpec, namespace: str, labels: Mapping[str, str]) -> PodConstraints:
        """Return the constraints of a pod without its claims; BadInputError names the place."""
        affinity, anti_affinity = _required_terms(spec.affinity)
        spread = spec.topology_spread_constraints or ()
        ports, unsupported = _read_host_ports(spec), _find_unsupported(spec)
        if not (affinity or anti_affinity or spread or ports or unsupported):
            return UNCONSTRAINED
        spread_key = tuple([_spread_key(one, labels) for one in spread])
        key = (
            namespace,
            _terms_key(affinity, labels),
            _terms_key(anti_affinity, labels),
            spread_key,
            ports,
            unsupported,
        )
        known = self._known.get(key)
        return (
            self._known.store(key, _read_constraints(spec, namespace, labels, ports, unsupported))
            if known is None
            else known
        )

    def with_claims(self, constraints: PodConstraints, spec: pod_json.PodSpec, pod: str) -> PodConstraints:
        """Return the constraints with the claims of the pod."""
        if not (spec.volumes or spec.resource_claims):
            return constraints
        claims, own_claims, unsupported = _read_claims(spec, pod)
        if not (claims or own_claims or unsupported):
            return constraints
        # The entry keeps the object alive, so that its id stays unique.
        key = (id(constraints), claims, own_claims, unsupported)
        entry = self._cache.get(key)
        if entry is None:
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            all_unsupported = tuple(sorted({*constraints.unsupported_constraints, *unsupported}))
            full = replace(constraints, claims=claims, own_claims=own_claims, unsupported_constraints=all_unsupported)
            entry = self._cache[key] = (constraints, full)
        return entry[1]


def _required_terms(affinity: pod_json.Affinity | None) -> tuple[_Terms, _Terms]:
    if affinity is None:
        return (), ()
    near, far = affinity.pod_affinity, affinity.pod_anti_affinity
    return (
        (near.required_during_scheduling_ignored_during_execution or ()) if near else (),
        (far.required_during_scheduling_ignored_during_execution or ()) if far else (),
    )


def _selector_key(selector: pod_json.LabelSelectorJson | None) -> tuple[object, ...] | None:
    if selector is None:
        return None
    return tuple(selector.match_labels.items()) if selector.match_labels else (), selector.match_expressions


def _terms_key(terms: _Terms, labels: Mapping[str, str]) -> tuple[object, ...]:
    return tuple(
        [
            (
                term.topology_key,
                _selector_key(term.label_selector),
                term.namespaces,
                _selector_key(term.namespace_selector),
                _select_labels(labels, term.match_label_keys),
                _select_labels(labels, term.mismatch_label_keys),
            )
            for term in terms
        ]
    )


def _spread_key(one: pod_json.TopologySpreadConstraintJson, labels: Mapping[str, str]) -> tuple[object, ...]:
    return (
        one.topology_key,
        one.max_skew,
        one.when_unsatisfiable,
        _selector_key(one.label_selector),
        one.min_domains,
        _select_labels(labels, one.match_label_keys),
        one.node_affinity_policy,
        one.node_taints_policy,
    )


def _select_labels(labels: Mapping[str, str], keys: tuple[str, ...] | None) -> tuple[tuple[str, str], ...]:
    """Return the pod's labels with these keys; keys that the pod lacks are ignored."""
    return tuple([(key, labels[key]) for key in keys if key in labels]) if keys else ()


def _read_constraints(
    spec: pod_json.PodSpec, namespace: str, labels: Mapping[str, str], ports: _Ports, unsupported: _Names
) -> PodConstraints:
    affinity, anti_affinity = _required_terms(spec.affinity)
    spread = [
        _read_spread(one, labels, f"spec.topologySpreadConstraints[{index}]")
        for index, one in enumerate(spec.topology_spread_constraints or ())
    ]
    constraints = PodConstraints(
        affinity=_read_terms(affinity, namespace, labels, "spec.affinity.podAffinity"),
        anti_affinity=_read_terms(anti_affinity, namespace, labels, "spec.affinity.podAntiAffinity"),
        spread=tuple([one for one in spread if one is not None]),
        host_ports=ports,
        unsupported_constraints=unsupported,
    )
    return UNCONSTRAINED if constraints == UNCONSTRAINED else constraints


def _read_terms(terms: _Terms, namespace: str, labels: Mapping[str, str], place: str) -> tuple[PodAffinityTerm, ...]:
    return tuple([_read_term(term, namespace, labels, f"{place}[{index}]") for index, term in enumerate(terms)])


def _read_term(
    term: pod_json.PodAffinityTermJson, namespace: str, labels: Mapping[str, str], place: str
) -> PodAffinityTerm:
    selector = None
    if term.label_selector is not None:
        selector = read_selector(term.label_selector, f"{place}.labelSelector")
        selector = _add_labels(selector, _select_labels(labels, term.match_label_keys), SelectorOperator.IN)
        selector = _add_labels(selector, _select_labels(labels, term.mismatch_label_keys), SelectorOperator.NOT_IN)
    others, namespaces = term.namespace_selector, frozenset(map(intern, term.namespaces or ()))
    return PodAffinityTerm(
        topology_key=_topology_key(term.topology_key, place),
        selector=selector,
        namespaces=namespaces if namespaces or others is not None else frozenset((namespace,)),
        namespace_selector=None if others is None else read_selector(others, f"{place}.namespaceSelector"),
    )


def _add_labels(selector: LabelSelector, own: Iterable[tuple[str, str]], operator: SelectorOperator) -> LabelSelector:
    """Add the pod's own labels to a selector; current API servers have added them when the pod was created."""
    stated = {requirement.key for requirement in selector.requirements if requirement.operator is operator}
    added = [LabelRequirement(intern(key), operator, (value,)) for key, value in own if key not in stated]
    return LabelSelector((*selector.requirements, *added)) if added else selector


def _read_spread(
    one: pod_json.TopologySpreadConstraintJson, labels: Mapping[str, str], place: str
) -> TopologySpreadConstraint | None:
    """Read a spread constraint; None for ScheduleAnyway."""
    if one.when_unsatisfiable == "ScheduleAnyway":
        return None
    if one.when_unsatisfiable != "DoNotSchedule":
        _reject_value(one.when_unsatisfiable, ("DoNotSchedule", "ScheduleAnyway"), f"{place}.whenUnsatisfiable")
    selector = None
    if one.label_selector is not None:
        selector = read_selector(one.label_selector, f"{place}.labelSelector")
        selector = _add_labels(selector, _select_labels(labels, one.match_label_keys), SelectorOperator.IN)
    return TopologySpreadConstraint(
        topology_key=_topology_key(one.topology_key, place),
        # kube-scheduler counts no pods for a selector that selects all.
        selector=selector if selector and selector.requirements else None,
        max_skew=_at_least_one(one.max_skew, f"{place}.maxSkew"),
        min_domains=1 if one.min_domains is None else _at_least_one(one.min_domains, f"{place}.minDomains"),
        honours_node_affinity=_is_honoured(one.node_affinity_policy, f"{place}.nodeAffinityPolicy", otherwise=True),
        honours_node_taints=_is_honoured(one.node_taints_policy, f"{place}.nodeTaintsPolicy", otherwise=False),
    )


def _topology_key(key: str, place: str) -> str:
    if not key:
        raise BadInputError(f"{place}: has no topologyKey; name a label of nodes")
    return intern(key)


def _at_least_one(value: int, place: str) -> int:
    if value < 1:
        raise BadInputError(f"{place}: {value} is too small; write 1 or more")
    return value


def _is_honoured(policy: str | None, place: str, *, otherwise: bool) -> bool:
    if not policy:
        return otherwise
    if policy not in _POLICIES:
        _reject_value(policy, _POLICIES, place)
    return policy == "Honor"


def _reject_value(value: str, allowed: Sequence[str], place: str) -> None:
    raise BadInputError(f'{place}: "{value}" is unknown; write one of {", ".join(allowed)}')


def _read_host_ports(spec: pod_json.PodSpec) -> _Ports:
    """Return the host ports of sidecars and main containers, sorted."""
    found: list[HostPort] = []
    for index, container in enumerate(spec.containers):
        if container.ports:
            _add_host_ports(found, container.ports, spec.host_network, f"spec.containers[{index}]")
    for index, container in enumerate(spec.init_containers or ()):
        if container.ports and container.restart_policy == "Always":
            _add_host_ports(found, container.ports, spec.host_network, f"spec.initContainers[{index}]")
    return tuple(sorted(set(found))) if found else ()


def _add_host_ports(
    found: list[HostPort], ports: Sequence[pod_json.ContainerPort], on_host: bool | None, container: str
) -> None:
    for index, port in enumerate(ports):
        number = port.host_port or (port.container_port if on_host else 0)
        if not number:
            continue
        place, protocol = f"{container}.ports[{index}]", port.protocol or "TCP"
        if not 0 < number <= _MAXIMUM_PORT:
            raise BadInputError(f"{place}: {number} is not a port; write 1 to {_MAXIMUM_PORT}")
        if protocol not in _PROTOCOLS:
            _reject_value(protocol, _PROTOCOLS, f"{place}.protocol")
        address = "" if port.host_ip in (None, _ANY_ADDRESS) else port.host_ip
        found.append(HostPort(intern(protocol), number, address or ""))


def _find_unsupported(spec: pod_json.PodSpec) -> _Names:
    """Return the constraints that cruise cannot evaluate, except for volumes and devices, sorted.

    These are node features (NodeDeclaredFeatures, on by default since 1.36), tolerations that compare numbers, and
    negative namespace selectors, which kube-scheduler 1.34 to 1.36 takes for all namespaces if a namespace has no
    labels.
    """
    found = set[str]()
    if spec.host_network and spec.host_users is False:
        found.add("node feature UserNamespacesHostNetworkSupport")
    for container in (*spec.containers, *(spec.init_containers or ())):
        if any(rule.action == _RESTART_ALL for rule in container.restart_policy_rules or ()):
            found.add("node feature RestartAllContainersOnContainerExits")
    for toleration in spec.tolerations or ():
        if toleration.operator not in (None, "", "Equal", "Exists"):
            found.add(f"toleration by {toleration.operator}")
    for terms in _required_terms(spec.affinity):
        if any(term.namespace_selector is not None and _is_negative(term.namespace_selector) for term in terms):
            found.add("namespaceSelector with nothing but NotIn or DoesNotExist")
    return tuple(sorted(found))


def _is_negative(selector: pod_json.LabelSelectorJson) -> bool:
    expressions = selector.match_expressions or ()
    return bool(expressions) and not selector.match_labels and all(one.operator in _NEGATIVE for one in expressions)


def _read_claims(spec: pod_json.PodSpec, pod: str) -> tuple[_Names, _Names, _Names]:
    """Return the pod's claims, those created with it, and its unsupported volumes and devices; each sorted.

    Unsupported are device claims, and disks without a claim, which only one node can attach or which count against
    limits.
    """
    claims, own = set[str](), set[str]()
    unsupported = {f"device {claim.name}" for claim in spec.resource_claims or ()}
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            claims.add(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            own.add(f"{pod}-{volume.name}")
        elif any(getattr(volume, disk) is not None for disk in _DISKS):
            unsupported.add(f"disk {volume.name}")
    return tuple(sorted(claims | own)), tuple(sorted(own - claims)), tuple(sorted(unsupported))

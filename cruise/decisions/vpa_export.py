"""Policies that say what VerticalPodAutoscalers say, so that these can be removed."""

from dataclasses import dataclass, replace
from typing import Any

from cruise.domain.annotations import MODE, ContainerOverrides, Overrides, UnreadableAnnotations
from cruise.domain.autoscalers import VpaContainerPolicy
from cruise.domain.cluster import ClusterSnapshot, VerticalPodAutoscaler, WorkloadRef
from cruise.domain.namespace_patterns import is_dns_label
from cruise.domain.overrides import (
    build_override_fields,
    find_contradiction,
    iterate_settings,
)
from cruise.domain.policy import LARGEST_MACHINE, MINIMUM_REQUEST, Mode
from cruise.domain.resources import StatedResources
from cruise.domain.vpa_overrides import get_vpa_overrides
from cruise.domain.written_policies import is_object_name

# Evictions come with mode full only, which an administrator chooses.
_MODES = {"Off": Mode.OBSERVE, "Initial": Mode.INITIAL}


@dataclass(frozen=True, slots=True)
class ExportedPolicy:
    """A policy for one workload, and where its settings were read, in words."""

    namespace: str
    workload: WorkloadRef
    overrides: Overrides
    origins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PolicyExport:
    """The policies, sorted by namespace and workload, and what could not be exported, each with its reason."""

    policies: tuple[ExportedPolicy, ...]
    problems: tuple[str, ...]


def export_policies(snapshot: ClusterSnapshot) -> PolicyExport:
    """Return a policy for each workload that a VerticalPodAutoscaler targets.

    If there are several, the first one's value comes first, and the lower mode.
    """
    found: dict[tuple[str, WorkloadRef], ExportedPolicy] = {}
    problems: list[str] = []
    for vpa in snapshot.vertical_autoscalers:
        if vpa.is_published or vpa.target is None:
            continue
        title = f"VerticalPodAutoscaler {vpa.namespace}/{vpa.name}"
        # They become the path of a file, and patterns of a selector.
        names = (vpa.target.kind.lower(), vpa.target.name)
        if not (is_dns_label(vpa.namespace) and all(map(is_object_name, names))):
            problems.append(f"{title}: its namespace or its target has a name that no object has")
            continue
        overrides = _convert_vpa(vpa, snapshot)
        if isinstance(overrides, str):
            problems.append(f"{title}: {overrides}")
        else:
            _add(found, ExportedPolicy(vpa.namespace, vpa.target, overrides, (title,)))
    policies = []
    for namespace, workload in sorted(found, key=lambda key: (key[0], str(key[1]))):
        one = found[namespace, workload]
        if find_contradiction(one.overrides) is None:
            policies.append(one)
        else:
            problems.append(f"{' and '.join(one.origins)}: the minimum of {namespace} {workload} is above the maximum")
    return PolicyExport(tuple(policies), tuple(problems))


def _add(found: dict[tuple[str, WorkloadRef], ExportedPolicy], one: ExportedPolicy) -> None:
    key = one.namespace, one.workload
    nearer = found.get(key)
    if nearer is not None:
        settings = dict(iterate_settings(one.overrides)) | dict(iterate_settings(nearer.overrides))
        modes = [each.overrides.mode for each in (nearer, one) if each.overrides.mode is not None]
        if modes:
            settings[MODE.setting] = min(modes)
        one = replace(one, overrides=_build(settings), origins=nearer.origins + one.origins)
    found[key] = one


def _build(settings: dict[str, Any]) -> Overrides:
    return Overrides(**build_override_fields(settings))


def _convert_vpa(vpa: VerticalPodAutoscaler, snapshot: ClusterSnapshot) -> Overrides | str:
    """Return a VerticalPodAutoscaler's policy, or why there is none."""
    for rule in vpa.rules:
        if not rule.minimum.resources.fits_in(LARGEST_MACHINE):
            return f"minAllowed of {rule.container or '*'} is more than any node has"
    overrides = get_vpa_overrides(replace(vpa, rules=tuple(map(_drop_pointless_bounds, vpa.rules))))
    if isinstance(overrides, UnreadableAnnotations):
        return overrides.detail
    containers = dict(overrides.containers)
    if overrides.resources == frozenset():
        # All containers are off, except for the named ones.
        workload = None if vpa.target is None else snapshot.workloads.get((vpa.namespace, vpa.target))
        if workload is None or workload.requests is None:
            return "it excludes all containers that it does not name, and the containers of its target are unknown"
        others = workload.requests.keys() - containers.keys() - workload.init_containers
        containers |= {name: ContainerOverrides(mode=Mode.OFF) for name in others}
        overrides = replace(overrides, resources=None)
    # A container that is off needs nothing else.
    containers = {name: one if one.mode is None else ContainerOverrides(one.mode) for name, one in containers.items()}
    containers = {name: one for name, one in containers.items() if one != ContainerOverrides()}
    mode = Mode.OFF if overrides.mode is Mode.OFF else _MODES.get(vpa.mode, Mode.RESIZE)
    return replace(overrides, mode=mode, containers=dict(sorted(containers.items())))


def _drop_pointless_bounds(rule: VpaContainerPolicy) -> VpaContainerPolicy:
    """Drop minimums below the smallest request, and maximums above the largest machine: policies may not have them."""
    least, most = MINIMUM_REQUEST, LARGEST_MACHINE
    return replace(
        rule,
        minimum=StatedResources(
            _keep_from(rule.minimum.cpu_millicores, least.cpu_millicores),
            _keep_from(rule.minimum.memory_bytes, least.memory_bytes),
        ),
        maximum=StatedResources(
            _keep_to(rule.maximum.cpu_millicores, most.cpu_millicores),
            _keep_to(rule.maximum.memory_bytes, most.memory_bytes),
        ),
    )


def _keep_from(amount: int | None, least: int) -> int | None:
    return None if amount is None or amount < least else amount


def _keep_to(amount: int | None, most: int) -> int | None:
    return None if amount is None or amount > most else amount

"""Read RightsizingPolicies and ClusterRightsizingPolicies."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import msgspec

from cruise.domain.annotations import CONTAINER_SETTINGS, OVERRIDES, POD_SETTINGS, UnreadableAnnotations
from cruise.domain.overrides import parse_settings
from cruise.domain.policy import is_dns_label
from cruise.domain.resources import quote_text
from cruise.domain.rightsizing_policies import PolicySelector, RightsizingPolicy, format_policy_field
from cruise.errors import BadInputError
from cruise.kube_json.object_errors import explain_validation_error, to_single_line
from cruise.kube_json.objects.scheduling import read_selector
from cruise.kube_json.wire.policy_json import (
    ContainerPolicyFields,
    PolicyObject,
    PolicySelectorJson,
    PolicySpec,
    RightsizingPolicyObject,
)

_Setting = tuple[str, str, str]


def decode_policy(document: PolicyObject) -> RightsizingPolicy:
    """Return a policy; if it cannot be read, one that selects all that it could and says why."""
    metadata = document.metadata
    namespace = (metadata.namespace or "default") if isinstance(document, RightsizingPolicyObject) else ""
    problem = ""
    try:
        spec = msgspec.convert(document.spec or {}, PolicySpec)
        selector = _read_policy_selector(spec.selector or PolicySelectorJson())
        _check_container_names(spec)
    except msgspec.ValidationError as error:
        problem = f"spec.{explain_validation_error(error)}"
    except BadInputError as error:
        problem = str(error)
    else:
        if namespace and (selector.namespaces or selector.namespace_labels is not None):
            problem = "spec.selector: it selects in its own namespace; write a ClusterRightsizingPolicy for others"
    if problem:
        unreadable = build_unreadable_policy(namespace, metadata.name, problem)
        return replace(unreadable, generation=metadata.generation, uid=metadata.uid or "")
    overrides = parse_settings(_iterate_policy_settings(spec))
    return RightsizingPolicy(namespace, metadata.name, selector, overrides, metadata.generation, metadata.uid or "")


def build_unreadable_policy(namespace: str, name: str, problem: str) -> RightsizingPolicy:
    """Return a policy whose selector is unreadable; `namespace` is empty for one of the cluster."""
    return RightsizingPolicy(namespace, name, overrides=UnreadableAnnotations(to_single_line(problem)))


def _read_policy_selector(stated: PolicySelectorJson) -> PolicySelector:
    place, pods, namespaces = "spec.selector", stated.pod_selector, stated.namespace_selector
    return PolicySelector(
        kinds=frozenset(stated.kinds or ()),
        names=frozenset(stated.names or ()),
        pod_labels=None if pods is None else read_selector(pods, f"{place}.podSelector"),
        namespaces=frozenset(stated.namespaces or ()),
        namespace_labels=None if namespaces is None else read_selector(namespaces, f"{place}.namespaceSelector"),
    )


def _check_container_names(spec: PolicySpec) -> None:
    """Raise BadInputError for names that the API server refuses: their settings would have no effect."""
    names = [one.name for one in spec.containers or ()]
    for name in names:
        if not is_dns_label(name):
            raise BadInputError(
                f"spec.containers: {quote_text(name)} is no name of a container; "
                "write one, or state the settings for all containers in spec"
            )
    repeated = next((name for name, times in Counter(names).items() if times > 1), None)
    if repeated is not None:
        raise BadInputError(f"spec.containers[{repeated}]: it is stated twice; write one item for each container")


def _iterate_policy_settings(spec: PolicySpec) -> Iterator[_Setting]:
    for override in POD_SETTINGS:
        value = getattr(spec, override.setting.replace("-", "_"))
        if value is not None:
            yield f"spec.{format_policy_field(override.setting)}", override.setting, value
    yield from _iterate_container_settings(spec, "spec", "")
    for container in spec.containers or ():
        place = f"spec.containers[{container.name}]"
        yield from _iterate_container_settings(container, place, f".{container.name}")


def _iterate_container_settings(stated: ContainerPolicyFields, place: str, suffix: str) -> Iterator[_Setting]:
    for override in CONTAINER_SETTINGS:
        value = getattr(stated, override.setting.replace("-", "_"))
        if value is not None:
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            yield f"{place}.{format_policy_field(override.setting)}", f"{override.setting}{suffix}", text
    for bound, quantities in (("min", stated.min_allowed), ("max", stated.max_allowed)):
        for resource, quantity in sorted((quantities or {}).items()):
            if f"{resource}-{bound}" in OVERRIDES and quantity is not None:
                yield f"{place}.{bound}Allowed.{resource}", f"{resource}-{bound}{suffix}", str(quantity)

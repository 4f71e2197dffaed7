"""ResourceQuotas: what each leaves, from a list of them."""

from collections.abc import Iterable, Mapping

import msgspec

from cruise.domain.cluster_policies import QuotaScope, ResourceQuota
from cruise.domain.resources import (
    NOTHING_STATED,
    QuantityError,
    StatedResources,
    parse_cpu_millicores,
    parse_memory_bytes,
)
from cruise.errors import BadInputError
from cruise.kube_json.refusals import decode_struct
from cruise.kube_json.wire.object_json import QuotaObject, QuotaSpec, QuotaStatus
from cruise.kube_json.wire.pod_json import JsonStruct, QuantityMap, QuantityText

# Quantities where they stand in objects: refusals name the place.

MOST = 1 << 53
"""More millicores or bytes than any machine has; capped here, so that the sums of a node stay within 64 bits."""


def read_cpu(value: QuantityText | None, place: str) -> int | None:
    """Read a CPU quantity in millicores; None for null. Raises BadInputError that names `place`."""
    if value is None:
        return None
    try:
        return _checked(parse_cpu_millicores(value if type(value) is str else str(value)), value, place)
    except QuantityError as error:
        raise BadInputError(f"{place}: {error}") from error


def read_memory(value: QuantityText | None, place: str) -> int | None:
    """Read a memory quantity in bytes, or a plain count; None for null. Raises BadInputError that names `place`."""
    if value is None:
        return None
    try:
        return _checked(parse_memory_bytes(value if type(value) is str else str(value)), value, place)
    except QuantityError as error:
        raise BadInputError(f"{place}: {error}") from error


def _checked(amount: int, value: QuantityText, place: str) -> int:
    if amount < 0:
        raise BadInputError(f'{place}: "{value}" is negative; write an amount of 0 or more')
    return min(amount, MOST)


def read_amounts(values: QuantityMap | None, place: str) -> StatedResources:
    """Read CPU and memory of a resource list; what is absent or null stays absent."""
    if not values:
        return NOTHING_STATED
    return StatedResources(
        read_cpu(values.get("cpu"), f"{place}.cpu"),
        read_memory(values.get("memory"), f"{place}.memory"),
    )


def is_counted(resource: str) -> bool:
    """Tell whether kube-scheduler adds up a resource by its name: all but CPU, memory, pods and attached volumes."""
    return resource not in ("cpu", "memory", "pods") and not resource.startswith("attachable-volumes-")


def read_extended(values: QuantityMap | None, place: str) -> dict[str, int]:
    """Read how much of extended resources, huge pages and local storage a resource list has."""
    counts = {}
    for resource, value in (values or {}).items():
        if is_counted(resource):
            count = read_memory(value, f"{place}.{resource}")
            if count is not None:
                counts[resource] = count
    return counts


class _QuotaList(JsonStruct, frozen=True):
    items: tuple[QuotaObject, ...] | None = None


_decode = msgspec.json.Decoder(_QuotaList)
_NO_SPEC, _NO_STATUS = QuotaSpec(), QuotaStatus()


def decode_quotas(text: bytes) -> dict[str, tuple[ResourceQuota, ...]]:
    """Return the quotas of each namespace from a list's JSON. Raises BadInputError."""
    listed = decode_struct(_decode, text, "ResourceQuotaList")
    return group_quotas_by_namespace(
        (one.metadata.namespace or "default", decode_quota(one)) for one in listed.items or ()
    )


def group_quotas_by_namespace(quotas: Iterable[tuple[str, ResourceQuota]]) -> dict[str, tuple[ResourceQuota, ...]]:
    """Return the quotas of each namespace, without those that count neither CPU nor memory."""
    found: dict[str, tuple[ResourceQuota, ...]] = {}
    for namespace, quota in quotas:
        if quota.requests_left != NOTHING_STATED or quota.limits_left != NOTHING_STATED:
            found[namespace] = (*found.get(namespace, ()), quota)
    return found


def decode_quota(document: QuotaObject) -> ResourceQuota:
    """Return what a quota leaves, and for which pods; what is not understood may be all used up."""
    spec, status = document.spec or _NO_SPEC, document.status or _NO_STATUS
    hard, used = status.hard or spec.hard or {}, status.used or {}
    requests = StatedResources(
        _left(hard, used, "cpu", "requests.cpu", of_cpu=True),
        _left(hard, used, "memory", "requests.memory", of_cpu=False),
    )
    limits = StatedResources(
        _left(hard, used, "limits.cpu", of_cpu=True),
        _left(hard, used, "limits.memory", of_cpu=False),
    )
    expressions = spec.scope_selector.match_expressions or () if spec.scope_selector else ()
    selected = (QuotaScope(one.scope_name, one.operator, frozenset(one.values or ())) for one in expressions)
    return ResourceQuota(requests, limits, (*map(QuotaScope, spec.scopes or ()), *selected))


def _left(hard: Mapping[str, object], used: Mapping[str, object], *names: str, of_cpu: bool) -> int | None:
    """Return what is left of a resource that may have several names, None where it is not counted."""
    read = parse_cpu_millicores if of_cpu else parse_memory_bytes
    left = []
    for name in names:
        if hard.get(name) is not None:
            try:
                left.append(max(0, read(str(hard[name])) - read(str(used.get(name) or "0"))))
            except QuantityError:
                # What is not understood may be all used up.
                left.append(0)
    return min(left, default=None)

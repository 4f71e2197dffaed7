"""Read quantities and times in objects, and decode ResourceQuotas."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from cruise.domain.autoscalers import QuotaScope, ResourceQuota
from cruise.domain.resources import (
    NOTHING_STATED,
    QuantityError,
    StatedResources,
    parse_cpu_millicores,
    parse_memory_bytes,
)
from cruise.errors import BadInputError
from cruise.kube_json.object_errors import decode_struct
from cruise.kube_json.wire.object_json import QuotaObject, QuotaSpec, QuotaStatus
from cruise.kube_json.wire.pod_json import JsonStruct, QuantityMap, QuantityText

# Quantities; errors name their place.

MAXIMUM_QUANTITY = 1 << 50
"""Quantities are capped to this many millicores or bytes, so that sums stay within 64 bits: no machine has as many."""


def read_cpu(value: QuantityText | None, place: str) -> int | None:
    """Parse a CPU quantity in millicores; None for null. BadInputError names `place`."""
    if value is None:
        return None
    try:
        return _check_amount(parse_cpu_millicores(value if type(value) is str else str(value)), value, place)
    except QuantityError as error:
        raise BadInputError(f"{place}: {error}") from error


def read_memory(value: QuantityText | None, place: str) -> int | None:
    """Parse a memory quantity in bytes or a count; None for null. BadInputError names `place`."""
    if value is None:
        return None
    try:
        return _check_amount(parse_memory_bytes(value if type(value) is str else str(value)), value, place)
    except QuantityError as error:
        raise BadInputError(f"{place}: {error}") from error


def _check_amount(amount: int, value: QuantityText, place: str) -> int:
    if amount < 0:
        raise BadInputError(f'{place}: "{value}" is negative; write an amount of 0 or more')
    return min(amount, MAXIMUM_QUANTITY)


def read_amounts(values: QuantityMap | None, place: str) -> StatedResources:
    """Parse CPU and memory of a resource list; absent or null values stay absent."""
    if not values:
        return NOTHING_STATED
    return StatedResources(
        read_cpu(values.get("cpu"), f"{place}.cpu"),
        read_memory(values.get("memory"), f"{place}.memory"),
    )


def is_extra_resource(resource: str) -> bool:
    """Return whether kube-scheduler counts a resource by name: not CPU, memory, pods and attached volumes."""
    return resource not in ("cpu", "memory", "pods") and not resource.startswith("attachable-volumes-")


def read_extended(values: QuantityMap | None, place: str) -> dict[str, int]:
    """Parse the extended resources, huge pages and ephemeral storage of a resource list."""
    counts = {}
    for resource, value in (values or {}).items():
        if is_extra_resource(resource):
            count = read_memory(value, f"{place}.{resource}")
            if count is not None:
                counts[resource] = count
    return counts


LATEST_TIME = datetime(3000, 1, 1, tzinfo=UTC)
"""A later time is due to a defect or an attack, and a duration after it might be no time."""


def read_time(time: datetime | None, place: str) -> datetime | None:
    """Return the time; BadInputError names `place` for one after LATEST_TIME, which a kubelet may state."""
    if time is not None and time > LATEST_TIME:
        raise BadInputError(f"{place}: {time.isoformat()} is not a time; write e.g. 2026-01-01T00:00:00Z")
    return time


class _QuotaList(JsonStruct, frozen=True):
    items: tuple[QuotaObject, ...] | None = None


_decode = msgspec.json.Decoder(_QuotaList)
_NO_SPEC, _NO_STATUS = QuotaSpec(), QuotaStatus()


def decode_quotas(text: bytes) -> dict[str, tuple[ResourceQuota, ...]]:
    """Return the quotas by namespace from a list's JSON; BadInputError."""
    listed = decode_struct(_decode, text, "ResourceQuotaList")
    return group_quotas_by_namespace(
        (one.metadata.namespace or "default", decode_quota(one)) for one in listed.items or ()
    )


def group_quotas_by_namespace(quotas: Iterable[tuple[str, ResourceQuota]]) -> dict[str, tuple[ResourceQuota, ...]]:
    """Return the quotas by namespace, without those that limit neither CPU nor memory."""
    found: dict[str, tuple[ResourceQuota, ...]] = {}
    for namespace, quota in quotas:
        if quota.requests_left != NOTHING_STATED or quota.limits_left != NOTHING_STATED:
            found[namespace] = (*found.get(namespace, ()), quota)
    return found


def decode_quota(document: QuotaObject) -> ResourceQuota:
    """Return what a quota leaves, and for which pods; unreadable quantities count as used up."""
    spec, status = document.spec or _NO_SPEC, document.status or _NO_STATUS
    hard, used = status.hard or spec.hard or {}, status.used or {}
    requests = StatedResources(
        _get_remainder(hard, used, "cpu", "requests.cpu", is_cpu=True),
        _get_remainder(hard, used, "memory", "requests.memory", is_cpu=False),
    )
    limits = StatedResources(
        _get_remainder(hard, used, "limits.cpu", is_cpu=True),
        _get_remainder(hard, used, "limits.memory", is_cpu=False),
    )
    expressions = spec.scope_selector.match_expressions or () if spec.scope_selector else ()
    selected = (QuotaScope(one.scope_name, one.operator, frozenset(one.values or ())) for one in expressions)
    return ResourceQuota(requests, limits, (*map(QuotaScope, spec.scopes or ()), *selected))


def _get_remainder(hard: Mapping[str, object], used: Mapping[str, object], *names: str, is_cpu: bool) -> int | None:
    """Return the remainder of a resource that may have several names, None if it is not limited."""
    read = parse_cpu_millicores if is_cpu else parse_memory_bytes
    left = []
    for name in names:
        if hard.get(name) is not None:
            try:
                left.append(max(0, read(str(hard[name])) - read(str(used.get(name) or "0"))))
            except QuantityError:
                # An unreadable quota may be used up.
                left.append(0)
    return min(left, default=None)

"""ResourceQuotas: what each leaves, from a list of them."""

from collections.abc import Iterable, Mapping

import msgspec

from cruise.domain.quantity import QuantityError, parse_cpu_millicores, parse_memory_bytes
from cruise.domain.quotas import Quota, QuotaScope
from cruise.domain.resources import NO_AMOUNTS, Amounts
from cruise.kube_json.refusals import decoded
from cruise.kube_json.wire.object_json import QuotaObject, QuotaSpec, QuotaStatus
from cruise.kube_json.wire.pod_json import Wire


class _Quotas(Wire, frozen=True):
    items: tuple[QuotaObject, ...] | None = None


_decode = msgspec.json.Decoder(_Quotas)
_NO_SPEC, _NO_STATUS = QuotaSpec(), QuotaStatus()


def decode_quotas(text: bytes) -> dict[str, tuple[Quota, ...]]:
    """Return the quotas of each namespace from a list's JSON. Raises BadInput."""
    listed = decoded(_decode, text, "ResourceQuotaList")
    return by_namespace((one.metadata.namespace or "default", decode_quota(one)) for one in listed.items or ())


def by_namespace(quotas: Iterable[tuple[str, Quota]]) -> dict[str, tuple[Quota, ...]]:
    """Return the quotas of each namespace, without those that count neither CPU nor memory."""
    found: dict[str, tuple[Quota, ...]] = {}
    for namespace, quota in quotas:
        if quota.requests_left != NO_AMOUNTS or quota.limits_left != NO_AMOUNTS:
            found[namespace] = (*found.get(namespace, ()), quota)
    return found


def decode_quota(document: QuotaObject) -> Quota:
    """Return what a quota leaves, and for which pods; what is not understood may be all used up."""
    spec, status = document.spec or _NO_SPEC, document.status or _NO_STATUS
    hard, used = status.hard or spec.hard or {}, status.used or {}
    requests = Amounts(
        _left(hard, used, "cpu", "requests.cpu", of_cpu=True),
        _left(hard, used, "memory", "requests.memory", of_cpu=False),
    )
    limits = Amounts(
        _left(hard, used, "limits.cpu", of_cpu=True),
        _left(hard, used, "limits.memory", of_cpu=False),
    )
    expressions = spec.scope_selector.match_expressions or () if spec.scope_selector else ()
    selected = (QuotaScope(one.scope_name, one.operator, frozenset(one.values or ())) for one in expressions)
    return Quota(requests, limits, (*map(QuotaScope, spec.scopes or ()), *selected))


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

"""ResourceQuotas: what each leaves, from a list of them."""

from collections.abc import Mapping

import msgspec

from cruise.domain.cluster import Quota
from cruise.domain.quantity import QuantityError, parse_cpu_millicores, parse_memory_bytes
from cruise.domain.resources import Amounts
from cruise.kube_json.refusals import decoded
from cruise.kube_json.wire.pod_json import Metadata, QuantityMap, Wire


class _Counts(Wire, frozen=True):
    hard: QuantityMap | None = None
    used: QuantityMap | None = None


class _Quota(Wire, frozen=True):
    metadata: Metadata
    spec: _Counts | None = None
    status: _Counts | None = None


class _Quotas(Wire, frozen=True):
    items: tuple[_Quota, ...] | None = None


_decode = msgspec.json.Decoder(_Quotas)
_NOTHING = _Counts()


def decode_quotas(text: bytes) -> dict[str, tuple[Quota, ...]]:
    """Return the quotas of each namespace from a list's JSON. Raises BadInput."""
    listed = decoded(_decode, text, "ResourceQuotaList")
    found: dict[str, tuple[Quota, ...]] = {}
    for one in listed.items or ():
        quota = _quota(one)
        if quota != Quota():
            namespace = one.metadata.namespace or "default"
            found[namespace] = (*found.get(namespace, ()), quota)
    return found


def _quota(document: _Quota) -> Quota:
    spec, status = document.spec or _NOTHING, document.status or _NOTHING
    hard, used = status.hard or spec.hard or {}, status.used or {}
    requests = Amounts(
        _left(hard, used, "cpu", "requests.cpu", of_cpu=True),
        _left(hard, used, "memory", "requests.memory", of_cpu=False),
    )
    limits = Amounts(
        _left(hard, used, "limits.cpu", of_cpu=True),
        _left(hard, used, "limits.memory", of_cpu=False),
    )
    return Quota(requests, limits)


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

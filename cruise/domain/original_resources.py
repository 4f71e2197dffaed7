"""The annotation that keeps what admission replaced, the way back from it, and the signature that makes it cruise's."""

import hmac
import json
from collections.abc import Iterable, Mapping
from hashlib import sha256

import msgspec

from cruise.domain.annotations import ORIGINAL_RESOURCES, ORIGINAL_RESOURCES_SIGNATURE
from cruise.domain.cluster import Pod
from cruise.domain.quantity import format_cpu_millicores, format_memory_bytes, parse_cpu_millicores, parse_memory_bytes
from cruise.domain.resources import Amounts

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


class _Stated(msgspec.Struct):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


def format_original_resources(amounts: Mapping[str, tuple[Amounts, Amounts]]) -> str:
    """Write requests and limits by container as compact JSON with sorted keys."""
    return _encode(
        {
            name: {"requests": amounts_json(requests), "limits": amounts_json(limits)}
            for name, (requests, limits) in amounts.items()
        }
    )


def parse_original_resources(text: str) -> dict[str, tuple[Amounts, Amounts]]:
    """Read what `format_original_resources` wrote. Raises ValueError for anything else."""
    try:
        stated = msgspec.json.decode(text, type=dict[str, _Stated])
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return {name: (_amounts(one.requests), _amounts(one.limits)) for name, one in stated.items()}


def signature_of(pod: Pod, text: str, key: bytes) -> str:
    """Sign a pod's annotation, such that it holds for pods of its direct controller alone."""
    # At admission a pod has neither a uid nor, mostly, a name; a ReplicaSet's name goes with its template.
    parts = (ORIGINAL_RESOURCES, pod.namespace, pod.owner_kind or "", pod.owner_name or "", text)
    return hmac.new(key, "\0".join(parts).encode("utf-8", "surrogatepass"), sha256).hexdigest()


def signed_originals(pod: Pod, keys: Iterable[bytes]) -> dict[str, tuple[Amounts, Amounts]] | None:
    """Read a pod's annotation where cruise's webhook signed it by any of some keys; None for any other."""
    text, stated = pod.annotations.get(ORIGINAL_RESOURCES), pod.annotations.get(ORIGINAL_RESOURCES_SIGNATURE)
    if text is None or stated is None:
        return None
    presented = stated.encode("utf-8", "surrogatepass")
    if not any(hmac.compare_digest(signature_of(pod, text, key).encode(), presented) for key in keys):
        return None
    return parse_original_resources(text)


def amounts_json(amounts: Amounts) -> dict[str, str]:
    """Return amounts as Kubernetes writes them, without what is absent."""
    stated = {}
    if amounts.cpu_millicores is not None:
        stated["cpu"] = format_cpu_millicores(amounts.cpu_millicores)
    if amounts.memory_bytes is not None:
        stated["memory"] = format_memory_bytes(amounts.memory_bytes)
    return stated


def _amounts(stated: Mapping[str, str]) -> Amounts:
    return Amounts(
        parse_cpu_millicores(stated["cpu"]) if "cpu" in stated else None,
        parse_memory_bytes(stated["memory"]) if "memory" in stated else None,
    )

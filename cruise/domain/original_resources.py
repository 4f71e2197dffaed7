"""The annotation that keeps what admission replaced, and the way back from it."""

import json
from collections.abc import Mapping

import msgspec

from cruise.domain.quantity import format_cpu_millicores, format_memory_bytes, parse_cpu_millicores, parse_memory_bytes
from cruise.domain.resources import Amounts


class _Stated(msgspec.Struct):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


def format_original_resources(amounts: Mapping[str, tuple[Amounts, Amounts]]) -> str:
    """Write requests and limits by container as compact JSON with sorted keys."""
    return json.dumps(
        {
            name: {"requests": amounts_json(requests), "limits": amounts_json(limits)}
            for name, (requests, limits) in amounts.items()
        },
        sort_keys=True,
        separators=(",", ":"),
    )


def parse_original_resources(text: str) -> dict[str, tuple[Amounts, Amounts]]:
    """Read what `format_original_resources` wrote. Raises ValueError for anything else."""
    stated = msgspec.json.decode(text, type=dict[str, _Stated])
    return {name: (_amounts(one.requests), _amounts(one.limits)) for name, one in stated.items()}


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

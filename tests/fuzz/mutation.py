"""A JSON mutator whose output is mostly valid JSON: replaces, removes, repeats or moves parts."""

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

DEEPEST = 50
UNUSUAL_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**63,
    1e308,
    "",
    "-",
    "1" * 400,
    "99999999999999999999Ei",
    "1e999999999",
    "-5",
    "\u0000\u001b[31m\u202e",
    "\ud800",
    "NaN",
    "+Inf",
    "2026-11-22T00:00:00Z",
    "cruise.io/mode",
    "off",
    [],
    {},
    [[]],
    {"": ""},
)


def mutated_json(data: bytes, most_bytes: int, seed: int) -> bytes | None:
    """Return a document with one to four of its parts changed, or None where the data is no document."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    chance = random.Random(seed)
    holder = [document]
    for _ in range(chance.randint(1, 4)):
        _change(holder, chance)
    text = json.dumps(holder[0]).encode()
    return text if len(text) <= most_bytes else None


def _change(holder: list[Any], chance: random.Random) -> None:
    parts = list(_parts(holder))
    container, key = chance.choice(parts)
    match chance.randrange(5):
        case 0 | 1:
            container[key] = deepcopy(chance.choice(UNUSUAL_VALUES))
        case 2:
            other, its = chance.choice(parts)
            container[key] = deepcopy(other[its])
        case 3 if isinstance(container[key], list) and container[key]:
            container[key] = container[key] * chance.choice((2, 3, 100))
        case 3 if isinstance(container[key], dict):
            container[key][str(chance.choice(UNUSUAL_VALUES))] = deepcopy(chance.choice(UNUSUAL_VALUES))
        case _ if container is not holder and isinstance(container, dict):
            del container[key]
        case _:
            container[key] = [container[key]]


def _parts(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict | list) and depth < DEEPEST:
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _parts(value[key], depth + 1)

"""Classes: pods with the same signature that take the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cruise.decisions.packing.building.amounts import Extras
from cruise.decisions.packing.building.census import Census
from cruise.decisions.packing.building.signatures import Signature
from cruise.domain.arrays import Int64Array


class ClassKey(NamedTuple):
    """What makes a class: its signature, and what one of its pods takes, or all on a node take `once`."""

    signature: Signature
    cpu: int
    memory: int
    cpu_headroom: int
    memory_headroom: int
    extras: Extras
    once: Extras


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """Classes in the order in which the pods first show them, each pod's, and those of each kind."""

    keys: list[ClassKey]
    pod_class: Int64Array
    of_kind: list[frozenset[int]]


def classify(
    census: Census,
    needs: Int64Array,
    signatures: Sequence[Signature],
    extras: Sequence[Extras],
    once: Sequence[Extras],
) -> Classes:
    """Sort all pods into classes; `extras` and `once` have what each kind takes beside CPU and memory."""
    numbers: dict[ClassKey, int] = {}
    pod_class: list[int] = []
    of_kind: list[set[int]] = [set() for _ in census.kinds]
    for taken, amounts in zip(census.taken, needs.tolist(), strict=True):
        kind = taken.kind
        key = (signatures[kind], *amounts, extras[kind], once[kind])
        # A plain tuple finds what a named one put there, in half the time.
        number = numbers.get(key)  # type: ignore[call-overload]
        if number is None:
            number = len(numbers)
            numbers[ClassKey._make(key)] = number
        pod_class.append(number)
        of_kind[kind].add(number)
    return Classes(list(numbers), np.array(pod_class, dtype=np.int64), [frozenset(classes) for classes in of_kind])

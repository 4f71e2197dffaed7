r"""The parts of a cluster that are read one by one, and the regular expressions that select them.

A partition is the pods whose names end in one of four characters. Kubernetes draws the end of a generated name from 27
characters; nine partitions have three of these each, and share out the rest. So the partitions are equal in size, the
same in every cluster and at every time: a pod, a workload or a namespace that comes or goes moves nothing between
them, and neither loses samples nor has them asked for again. Reading one may take several queries, cut from the names
that are there at the moment; however they are cut, together they select exactly the partition.
"""

from collections import Counter
from collections.abc import Mapping

# The ordinals 0 and 1, the most frequent of StatefulSets, are apart.
PARTITIONS: Mapping[str, str] = {
    f"pods-ending-{characters}": characters
    for characters in ("bcd0", "fgh1", "jkl3", "mnpa", "qrse", "tvwi", "xz2o", "456u", "789y")
}
# Where names agree this far back, more cutting is in vain.
DEEPEST = 40


def partition_of(pod: str) -> str:
    """Return the partition of a pod's name."""
    last = pod[-1:]
    return next(name for name, characters in PARTITIONS.items() if last in characters)


def selectors(partition: str, containers: Mapping[str, int], limit: int) -> list[str]:
    """Return regular expressions that cut a partition so that each selects at most `limit` containers.

    `containers` counts them by pod name. The expressions are disjoint and select every possible name that ends like
    the partition. Names that share a very long ending stay together, whatever their number.
    """
    return _cut("", PARTITIONS[partition], containers, limit)


def _cut(tail: str, characters: str, containers: Mapping[str, int], limit: int) -> list[str]:
    """Cut the names that end in one of `characters` followed by `tail`."""
    depth = len(tail)
    total, by_character = 0, Counter[str]()
    for pod, count in containers.items():
        if len(pod) > depth and pod[-1 - depth] in characters and pod.endswith(tail):
            total += count
            by_character[pod[-1 - depth]] += count
    if total <= limit or depth >= DEEPEST:
        return [f".*[{_in_class(characters)}]{_literal(tail)}"]
    groups = _grouped(characters, by_character, limit)
    if len(groups) > 1:
        return [piece for group in groups for piece in _cut(tail, group, containers, limit)]
    return _cut_before(characters + tail, containers, limit)


def _cut_before(tail: str, containers: Mapping[str, int], limit: int) -> list[str]:
    """Cut the names that end in `tail`, the name that is nothing else included, by the character before it."""
    depth = len(tail)
    found = Counter[str]()
    for pod, count in containers.items():
        if pod.endswith(tail):
            found[pod[-1 - depth : len(pod) - depth]] += count
    present = "".join(sorted(found.keys() - {""}))
    pieces = [piece for group in _grouped(present, found, limit) for piece in _cut(tail, group, containers, limit)]
    # What is not there now may come, or may have been there before.
    others = f"(?:.*[^{_in_class(present)}])?{_literal(tail)}" if present else f".*{_literal(tail)}"
    return [*pieces, others]


def _grouped(characters: str, counts: Mapping[str, int], limit: int) -> list[str]:
    """Put neighbouring characters together as long as their sum stays within the limit."""
    groups: list[str] = []
    room = 0
    for character in characters:
        count = counts.get(character, 0)
        if groups and count <= room:
            groups[-1] += character
            room -= count
        else:
            groups.append(character)
            room = limit - count
    return groups


def _in_class(characters: str) -> str:
    """Escape for the inside of brackets: names hold letters, digits, dots and dashes, and the dash goes last."""
    return characters.replace("-", "") + "-" * ("-" in characters)


def _literal(tail: str) -> str:
    return tail.replace(".", "[.]")

"""One copy of equal values, for as long as it is in use."""

from collections.abc import Callable, Hashable, Iterable
from sys import getrefcount
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# One value may be a hundred KiB: the placement of a pod with very many terms.
_LEAST = 128


def _holders(values: Iterable[object]) -> list[int]:
    return [getrefcount(value) for value in values]


# What is counted for a value that only its table holds, which is up to the interpreter.
_ALONE = _holders({0: object()}.values())[0]


class SharedValues(Generic[K, V]):
    """Keeps one value of each key, and from time to time forgets those that are not referred to elsewhere any more.

    So it stays in proportion to what is in use, however many values come and go. What a value is made of must be
    reachable through it alone, or the count of its holders would miss some.
    """

    __slots__ = ("_known", "_most")

    def __init__(self) -> None:
        self._known: dict[K, V] = {}
        self._most = _LEAST

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: K) -> V | None:
        """Return the value of a key if it is known."""
        return self._known.get(key)

    def keep(self, key: K, value: V) -> V:
        """Take a value as its key's."""
        if len(self._known) >= self._most:
            self._forget_unheld()
        self._known[key] = value
        return value

    def one(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, made at its first use."""
        known = self._known.get(key)
        return self.keep(key, make()) if known is None else known

    def _forget_unheld(self) -> None:
        holders = _holders(self._known.values())
        self._known = {
            key: value
            for (key, value), count in zip(self._known.items(), holders, strict=True)
            if count > _ALONE + (key is value)
        }
        self._most = max(_LEAST, 2 * len(self._known))

"""The objects of one kind, decoded, and those apart that cannot be."""

from collections.abc import Callable
from sys import intern
from typing import Generic, Protocol, TypeVar

from cruise.errors import BadInput
from cruise.kube_json.reading.stream import Unreadable, unreadable
from cruise.kube_json.wire.object_json import AnyObject

T = TypeVar("T", bound=AnyObject)
T_contra = TypeVar("T_contra", bound=AnyObject, contravariant=True)
V = TypeVar("V")

Key = tuple[str, str]
"""Namespace and name."""


def key_of(item: AnyObject | Unreadable) -> Key:
    """Return the key of an object."""
    if isinstance(item, Unreadable):
        return item.namespace, item.name
    return intern(item.metadata.namespace or ""), item.metadata.name


class Shelf(Generic[T, V]):
    """Values by namespace and name. `changed` gets the key of every object that is added, removed or modified.

    `decode` may leave an object out by None. What it refuses is in `odd`.
    """

    def __init__(self, decode: Callable[[T], V | None], changed: Callable[[Key], None]) -> None:
        self.values: dict[Key, V] = {}
        self.odd: dict[Key, Unreadable] = {}
        self._decode = decode
        self._changed = changed

    def put(self, item: T | Unreadable) -> None:
        """Take an object as it is now."""
        key = key_of(item)
        if not isinstance(item, Unreadable):
            try:
                value = self._decode(item)
            except BadInput as error:
                item = unreadable(item, None, str(error))
            else:
                self._keep(key, value)
                return
        self.values.pop(key, None)
        self.odd[key] = item
        self._changed(key)

    def drop(self, key: Key) -> None:
        """Remove an object."""
        known = self.values.pop(key, None)
        odd = self.odd.pop(key, None)
        if known is not None or odd is not None:
            self._changed(key)

    def names(self) -> set[Key]:
        """Return the keys of all objects."""
        return self.values.keys() | self.odd.keys()

    def _keep(self, key: Key, value: V | None) -> None:
        odd = self.odd.pop(key, None)
        if value is None:
            changed = self.values.pop(key, None) is not None
        else:
            changed = self.values.get(key) != value
            if changed:
                self.values[key] = value
        if changed or odd is not None:
            self._changed(key)


class Keeper(Protocol[T_contra]):
    """What keeps the objects of one kind."""

    def put(self, item: T_contra | Unreadable) -> None:
        """Take an object as it is now."""
        ...

    def drop(self, key: Key) -> None:
        """Remove an object."""
        ...

    def names(self) -> set[Key]:
        """Return the keys of all objects."""
        ...


class KindShelf:
    """Takes the events of one kind in the order of versions, also where single objects were read ahead of the watch."""

    def __init__(self, keeper: Keeper[AnyObject]) -> None:
        self._keeper = keeper
        self._read_ahead: dict[Key, int] = {}

    def put(self, item: AnyObject | Unreadable, version: str) -> None:
        """Take an object from the watch."""
        key = key_of(item)
        if not self._is_passed(key, version):
            self._keeper.put(item)

    def drop(self, key: Key, version: str) -> None:
        """Remove an object that the watch reports as deleted."""
        if not self._is_passed(key, version):
            self._keeper.drop(key)

    def keep_only(self, names: set[Key]) -> None:
        """Remove every object that a list did not have."""
        for key in self._keeper.names() - names:
            self._read_ahead.pop(key, None)
            self._keeper.drop(key)

    def merge(self, item: AnyObject, watched: str | None) -> None:
        """Take an object that was read by itself, unless the watch, which is at version `watched`, is ahead."""
        version, seen = _number(item.metadata.resource_version), _number(watched)
        if version is None or seen is None or version > seen:
            self._keeper.put(item)
            if version is not None:
                self._read_ahead[key_of(item)] = version

    def forget(self, key: Key) -> None:
        """Remove an object that was read by itself and not found."""
        self._keeper.drop(key)

    def _is_passed(self, key: Key, version: str) -> bool:
        """Tell whether something newer than `version` was merged."""
        if not self._read_ahead or key not in self._read_ahead:
            return False
        number = _number(version)
        if number is not None and number < self._read_ahead[key]:
            return True
        del self._read_ahead[key]
        return False


def _number(version: str | None) -> int | None:
    """Return a version as a number: those of one kind grow, as of server version 1.35 by contract."""
    return int(version) if version and version.isdecimal() else None

"""Annotations and labels: trimmed to what decisions read, equal maps shared."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import intern

from cruise.domain.annotations import NAMESPACE_NAME, decisions_read
from cruise.kube_json.objects.shared_values import SharedValues

_NOTHING: Mapping[str, str] = {}


def trimmed(annotations: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the annotations that decisions read."""
    if not annotations:
        return _NOTHING
    kept = {key: text for key, text in annotations.items() if decisions_read(key)}
    return kept or _NOTHING


def with_name(labels: Mapping[str, str] | None, namespace: str) -> Mapping[str, str]:
    """Return a namespace's labels with the one that the API server gives to each."""
    return {NAMESPACE_NAME: namespace} | dict(labels or {})


@dataclass(frozen=True, slots=True)
class StringMaps:
    """Keeps one copy of equal maps of strings: replicas share their labels and annotations."""

    _known: SharedValues[tuple[tuple[str, str], ...], Mapping[str, str]] = field(default_factory=SharedValues)

    def labels(self, labels: Mapping[str, str] | None) -> Mapping[str, str]:
        """Return the labels as they are."""
        return self._shared(labels) if labels else _NOTHING

    def annotations(self, annotations: Mapping[str, str] | None) -> Mapping[str, str]:
        """Return the annotations that decisions read."""
        kept = trimmed(annotations)
        return self._shared(kept) if kept else kept

    def _shared(self, entries: Mapping[str, str]) -> Mapping[str, str]:
        key = tuple(entries.items())
        known = self._known.get(key)
        if known is None:
            interned = tuple([(intern(name), intern(value)) for name, value in key])
            known = self._known.keep(interned, dict(interned))
        return known

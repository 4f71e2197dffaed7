"""Actions, targets and overrides as JSON documents: what has no table of its own.

Numbers that stand for names in the code (modes, rankings) are stored by name, so that documents read by themselves
and outlive a renumbering.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from cruise.domain.actions import Action, ContainerTarget, EvictPod, ResizePod, TaintNode, UntaintNode
from cruise.domain.annotations import Overrides
from cruise.domain.policy import EvictionRanking, Mode

Document = dict[str, Any]

_ACTIONS: dict[str, type[Action]] = {
    "resize": ResizePod,
    "evict": EvictPod,
    "taint": TaintNode,
    "untaint": UntaintNode,
}
_KINDS = {action: kind for kind, action in _ACTIONS.items()}
EVICTION = _KINDS[EvictPod]


def kind_of(action: Action) -> str:
    """Return the name under which an action of its type is stored."""
    return _KINDS[type(action)]


def action_document(action: Action) -> Document:
    """Return an action as a document."""
    return _named(msgspec.to_builtins(action))


def read_action(kind: str, document: Document) -> Action:
    """Return the action of a kind that `action_document` wrote."""
    action: Action = msgspec.convert(_numbered(document), type=_ACTIONS[kind])
    return action


def targets_document(containers: Sequence[ContainerTarget]) -> list[Document]:
    """Return the targets of a pod's containers as documents."""
    documents: list[Document] = msgspec.to_builtins(containers)
    return documents


def read_targets(documents: list[Document]) -> tuple[ContainerTarget, ...]:
    """Return the targets that `targets_document` wrote."""
    return msgspec.convert(documents, type=tuple[ContainerTarget, ...])


def override_document(override: Overrides) -> Document:
    """Return an override as a document."""
    document = _named(msgspec.to_builtins(override))
    if override.resources is not None:
        document["resources"] = sorted(document["resources"])
    return document


def read_override(document: Document) -> Overrides:
    """Return the override that `override_document` wrote."""
    return msgspec.convert(_numbered(document), type=Overrides)


def _named(document: Document) -> Document:
    # Of a moment, and known right before a write is sent.
    document.pop("version", None)
    if document.get("mode") is not None:
        document["mode"] = Mode(document["mode"]).label
    if document.get("ranking") is not None:
        document["ranking"] = EvictionRanking(document["ranking"]).label
    return document


def _numbered(document: Document) -> Document:
    document = dict(document)
    if document.get("mode") is not None:
        document["mode"] = Mode[document["mode"].upper()]
    if document.get("ranking") is not None:
        document["ranking"] = EvictionRanking[document["ranking"].upper()]
    return document

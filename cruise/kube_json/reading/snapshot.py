"""A whole cluster from what `kubectl get nodes,pods,… -A -o json` prints."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

import msgspec

from cruise.domain.cluster import Snapshot
from cruise.errors import BadInput
from cruise.kube_json.objects.owners import is_of_another
from cruise.kube_json.reading.decode import broken_input, decode_items
from cruise.kube_json.reading.gathering import Gathering
from cruise.kube_json.reading.split import BrokenJson, ItemList
from cruise.kube_json.refusals import convert, label_of, label_of_document, one_line
from cruise.kube_json.wire import object_json

_HOW = "print it with: kubectl get nodes,pods,replicasets,deployments,… -A -o json"
_SHAPES: Mapping[str, type[object_json.AnyObject]] = {
    str(shape.__struct_config__.tag): shape for shape in get_args(object_json.AnyObject)
}
# Other API groups have kinds of these names, which are something else. OpenKruise's StatefulSets and DaemonSets are not
# among them: they are what Kubernetes' own are, and more.
_SHAPES_OF_LOOKALIKES = (
    object_json.CronJobObject,
    object_json.DeploymentObject,
    object_json.JobObject,
    object_json.NodeObject,
    object_json.ReplicaSetObject,
)
_LOOKALIKES = frozenset(str(shape.__struct_config__.tag) for shape in _SHAPES_OF_LOOKALIKES)
_Decoder = msgspec.json.Decoder[list[object_json.AnyObject]]


def _decoder(item: Any) -> _Decoder:  # noqa: ANN401 - a type, or a union of types
    return msgspec.json.Decoder(list[item])


_MIXED = _decoder(object_json.AnyObject)
_OF_KIND = {f"{kind}List": _decoder(shape) for kind, shape in _SHAPES.items()}


def read_snapshot(chunks: Iterable[bytes], name: str) -> Snapshot:
    """Read a `v1` List, or a list of one kind, from the chunks of one document called `name`.

    Kinds that cruise does not read are passed over. Raises BadInput, one line that names file, place and fix.
    """
    items, gathering = ItemList(chunks), Gathering()
    last: object_json.AnyObject | None = None
    try:
        try:
            for document in _documents(items):
                gathering.add(document)
                last = document
        except BrokenJson as error:
            _refuse_other_documents(items.fields)
            raise broken_input(error, _label(last), _HOW) from error
        _refuse_other_documents(items.fields)
        if "kind" not in items.fields:
            raise BadInput(f"is not a List: it has no kind; {_HOW}")
        return gathering.snapshot()
    except BadInput as error:
        raise BadInput(one_line(f"{name}: {error}")) from error


def _refuse_other_documents(fields: Mapping[str, object]) -> None:
    """Refuse a document by its kind, as soon as that was read."""
    kind = fields.get("kind", "List")
    if not isinstance(kind, str) or not kind.endswith("List"):
        raise BadInput(f"is a {kind}, not a List; {_HOW}")


def _documents(items: ItemList) -> Iterator[object_json.AnyObject]:
    def decoder_of(fields: Mapping[str, object]) -> _Decoder:
        _refuse_other_documents(fields)
        return _OF_KIND.get(_list_kind(fields), _MIXED)

    def decode_one(document: object) -> object_json.AnyObject | None:
        if not isinstance(document, dict):
            raise BadInput(f"items: {document!r:.40} is not an object; {_HOW}")
        kind = _kind(document, _list_kind(items.fields))
        is_read = kind in _SHAPES and not (kind in _LOOKALIKES and is_of_another(str(document.get("apiVersion", ""))))
        return convert({**document, "kind": kind}, _SHAPES[kind]) if is_read else None

    for document in decode_items(items, decoder_of, decode_one):
        if not (isinstance(document, _SHAPES_OF_LOOKALIKES) and is_of_another(document.api_version)):
            yield document


def _list_kind(fields: Mapping[str, object]) -> str:
    return str(fields.get("kind", "List"))


def _kind(document: Mapping[str, Any], list_kind: str) -> str:
    """Return an item's kind; in a list of one kind the items need not say it."""
    kind = document.get("kind") or list_kind.removesuffix("List")
    if not isinstance(kind, str) or not kind:
        raise BadInput(f"{label_of_document(document)}: has no kind; {_HOW}")
    return kind


def _label(document: object_json.AnyObject | None) -> str:
    if document is None:
        return ""
    metadata = document.metadata
    return label_of(str(document.__struct_config__.tag), metadata.namespace, metadata.name)

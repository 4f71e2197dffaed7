"""Errors of invalid objects: one line with place and fix."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

import msgspec

from cruise.errors import DECODE_ERRORS, BadInputError

StructT = TypeVar("StructT")

_PLACE = re.compile(r" - at `(?:key in )?\$(.*)`$")
_EXPECTED = re.compile(r"Expected `(.*)`, got `(.*)`")
_OUT_OF_RANGE = re.compile(r"Integer value out of range|Expected `int` [<>]=? -?[0-9]+")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_TYPE_NAMES = {
    "array": "a list",
    "bool": "true or false",
    "datetime": "a time such as 2026-01-01T00:00:00Z",
    "float": "a number with a fraction",
    "int": "a whole number",
    "int | float": "a number",
    "int | float | str": "a quantity",
    "object": "an object",
    "str": "a text",
}


def convert_to_single_line(message: object) -> str:
    """Return a message without control characters, which quoted input may contain."""
    return "".join(letter if letter.isprintable() else "�" for letter in str(message))


def format_object_label(kind: str, namespace: str | None, name: str) -> str:
    """Format an object's name for messages: `Pod shop/web-1`, `Node n1`."""
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def convert_to_struct(document: Mapping[str, Any], struct: type[StructT]) -> StructT:
    """Convert decoded JSON to a struct; BadInputError names object, place and fix."""
    try:
        return msgspec.convert(document, struct)
    except msgspec.ValidationError as error:
        raise BadInputError(
            convert_to_single_line(f"{format_document_label(document)}: {explain_validation_error(error)}")
        ) from error


def decode_struct(decoder: msgspec.json.Decoder[StructT], text: bytes | msgspec.Raw, kind: str) -> StructT:
    """Decode JSON text; BadInputError names kind, place and fix."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise BadInputError(convert_to_single_line(f"{kind}: {explain_validation_error(error)}")) from error
    except DECODE_ERRORS as error:
        raise BadInputError(convert_to_single_line(f"{kind}: not JSON: {error}")) from error


@contextmanager
def name_object_in_errors(kind: str, namespace: str | None, name: str) -> Iterator[None]:
    """Add the object's name to BadInputErrors."""
    try:
        yield
    except BadInputError as error:
        raise BadInputError(f"{format_object_label(kind, namespace, name)}: {error}") from error


def format_document_label(document: object) -> str:
    """Format the name of an object of any struct."""
    fields = document if isinstance(document, Mapping) else {}
    metadata = fields.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    kind, namespace, name = fields.get("kind"), metadata.get("namespace"), metadata.get("name")
    return format_object_label(
        kind if isinstance(kind, str) else "an object without kind",
        namespace if isinstance(namespace, str) else None,
        name if isinstance(name, str) else "without a name",
    )


def explain_validation_error(error: Exception, struct: type | None = None, root: str = "") -> str:
    """Return `place: problem; fix` for a validation error.

    `struct` is what was read, to name the known field that is most similar to an unknown one; `root` is its own place.
    """
    message = str(error)
    place = _PLACE.search(message)
    problem = message[: place.start()] if place else message
    where = place.group(1).lstrip(".") if place else ""
    expected, missing = _EXPECTED.fullmatch(problem), _MISSING.fullmatch(problem)
    unknown = _UNKNOWN.fullmatch(problem)
    if unknown:
        known = _list_fields(struct, where)
        near = get_close_matches(unknown.group(1), known, n=1, cutoff=0.5)
        where = f"{where}.{unknown.group(1)}" if where else unknown.group(1)
        problem = f"no such field; {f'did you mean {near[0]}?' if near else 'remove it'}"
    elif expected:
        wanted = expected.group(1).removesuffix(" | null")
        wanted, found = _TYPE_NAMES.get(wanted, wanted), _TYPE_NAMES.get(expected.group(2), expected.group(2))
        problem = f"is {found} instead of {wanted}; write {wanted}"
    elif _OUT_OF_RANGE.fullmatch(problem):
        problem = "is out of range; write a whole number of 32 bits"
    elif missing:
        problem = f"has no {missing.group(1)}; add it"
    elif "RFC3339" in problem or "timezone" in problem:
        problem = "is not a time; write e.g. 2026-01-01T00:00:00Z"
    else:
        problem = f"{problem[:1].lower()}{problem[1:]}; correct it"
    where = ".".join(one for one in (root, where) if one)
    return f"{where}: {problem}" if where else problem


def _list_fields(struct: type | None, path: str) -> Sequence[str]:
    """Return the fields of the struct at a path such as `containers[0].freeze`, empty if it is not known."""
    found: Any = struct
    for name in path.split(".") if path else ():
        fields = {} if found is None else {one.encode_name: one.type for one in msgspec.structs.fields(found)}
        found = _find_struct(fields.get(name.partition("[")[0]))
    return () if found is None else [one.encode_name for one in msgspec.structs.fields(found)]


def _find_struct(annotation: object) -> type | None:
    """Return the struct in a type such as `tuple[Struct, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    return next((one for one in map(_find_struct, get_args(annotation)) if one is not None), None)

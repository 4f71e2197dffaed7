"""Errors of invalid objects: one line with place and fix."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from cruise.errors import DECODE_ERRORS, BadInputError

StructT = TypeVar("StructT")

_PLACE = re.compile(r" - at `(?:key in )?\$(.*)`$")
_EXPECTED = re.compile(r"Expected `(.*)`, got `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")
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


def to_single_line(message: object) -> str:
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
            to_single_line(f"{format_document_label(document)}: {explain_validation_error(error)}")
        ) from error


def decode_struct(decoder: msgspec.json.Decoder[StructT], text: bytes | msgspec.Raw, kind: str) -> StructT:
    """Decode JSON text; BadInputError names kind, place and fix."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise BadInputError(to_single_line(f"{kind}: {explain_validation_error(error)}")) from error
    except DECODE_ERRORS as error:
        raise BadInputError(to_single_line(f"{kind}: not JSON: {error}")) from error


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


def explain_validation_error(error: Exception) -> str:
    """Return `place: problem; fix` for a validation error."""
    message = str(error)
    place = _PLACE.search(message)
    problem = message[: place.start()] if place else message
    where = place.group(1).lstrip(".") if place else ""
    expected, missing = _EXPECTED.fullmatch(problem), _MISSING.fullmatch(problem)
    if expected:
        wanted = expected.group(1).removesuffix(" | null")
        wanted, found = _TYPE_NAMES.get(wanted, wanted), _TYPE_NAMES.get(expected.group(2), expected.group(2))
        problem = f"is {found} instead of {wanted}; write {wanted}"
    elif missing:
        problem = f"has no {missing.group(1)}; add it"
    elif "RFC3339" in problem or "timezone" in problem:
        problem = "is not a time; write e.g. 2026-01-01T00:00:00Z"
    else:
        problem = f"{problem[:1].lower()}{problem[1:]}; correct it"
    return f"{where}: {problem}" if where else problem

"""What users and servers wrote, as people may be shown it: control characters in sight instead of in effect."""

import re

# C0 and C1 with DEL, what has no width or turns the direction of what follows, separators of lines, tags, and halves of
# surrogate pairs: a terminal or a page would act on these in place of showing them.
_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_LONGEST = 2000


def plain(text: str, longest: int = _LONGEST) -> str:
    """Write control characters as Python escapes them, and cut what is longer than anybody reads."""
    if len(text) > longest:
        text = f"{text[: longest - 1]}…"
    return _CONTROLS.sub(_escaped, text)


def plain_lines(text: str) -> str:
    """Write control characters as `plain` does, save those between lines, and cut nothing."""
    return "\n".join([_CONTROLS.sub(_escaped, line) for line in text.split("\n")])


def controls_in(text: str) -> list[tuple[int, str]]:
    """Return where control characters are, each with what is shown in its place."""
    return [(found.start(), _escaped(found)) for found in _CONTROLS.finditer(text)]


def plain_json(document: bytes) -> bytes:
    """Escape what JSON may leave as it is and a terminal acts on; the document says the same."""
    if document.isascii() and b"\x7f" not in document:
        return document
    return _CONTROLS.sub(_json_escaped, document.decode()).encode()


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode()


def _json_escaped(found: re.Match[str]) -> str:
    # What stands between the values of a document.
    if found[0] in "\n\r\t":
        return found[0]
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))

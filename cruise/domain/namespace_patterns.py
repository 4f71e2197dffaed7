"""Names and patterns of namespaces; patterns as in fnmatch: `*`, `?`, `[a-c]`, `[!a-c]`."""

import re
from collections.abc import Collection
from fnmatch import translate
from functools import lru_cache

from cruise.domain.resources import quote_text

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_LONGEST_NAME = 63
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_TOKEN = re.compile(r"\*|\?|\[!?\]?[-a-z0-9*?!\[]*\]|[-a-z0-9]", re.ASCII)


def is_dns_label(text: str) -> bool:
    """Return whether a text is a DNS label, as names of namespaces and containers are."""
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None


def check_namespace_pattern(text: str) -> None:
    """Raise ValueError with the reason if a pattern matches no valid name."""
    tokens = _TOKEN.findall(text)
    if not text or "".join(tokens) != text:
        raise ValueError(
            f"{quote_text(text)} matches no namespace: names have lower-case letters, digits and hyphens; "
            "patterns may also have *, ? and [a-c]"
        )
    single = [token for token in tokens if token != "*"]
    characters = [_find_matching_characters(token) for token in tokens]
    if not all(characters) or not (_may_end(characters[0]) and _may_end(characters[-1])):
        raise ValueError(f"{quote_text(text)} matches no namespace: names begin and end with a letter or a digit")
    if len(single) > _LONGEST_NAME:
        raise ValueError(f"{quote_text(text)} matches no namespace: names have at most {_LONGEST_NAME} characters")


def matches_any_pattern(patterns: Collection[str], name: str) -> bool:
    """Return whether a name is among the names and patterns."""
    return name in patterns or any(_regex(pattern).fullmatch(name) for pattern in patterns if not is_dns_label(pattern))


def _find_matching_characters(token: str) -> str:
    """Return the characters that a part of a pattern matches."""
    return "".join(one for one in f"{_LETTERS}-" if _regex(token).fullmatch(one))


def _may_end(characters: str) -> bool:
    return any(one != "-" for one in characters)


@lru_cache(maxsize=1 << 10)
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))

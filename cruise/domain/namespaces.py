"""Names of namespaces, and patterns of them in the way of fnmatch: `*`, `?`, `[a-c]`, `[!a-c]`."""

import re
from collections.abc import Collection
from fnmatch import translate
from functools import lru_cache

from cruise.domain.quoting import quoted

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_LONGEST = 63
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_TOKEN = re.compile(r"\*|\?|\[!?\]?[-a-z0-9*?!\[]*\]|[-a-z0-9]", re.ASCII)


def is_namespace(text: str) -> bool:
    """Tell whether text can be the name of a namespace."""
    return len(text) <= _LONGEST and _NAME.fullmatch(text) is not None


def check_pattern(text: str) -> None:
    """Raise ValueError, with the reason in words, for a pattern that matches no name of a namespace."""
    tokens = _TOKEN.findall(text)
    if not text or "".join(tokens) != text:
        raise ValueError(
            f"{quoted(text)} matches no namespace: names have lower-case letters, digits and hyphens, "
            "and patterns *, ? and [a-c] besides"
        )
    single = [token for token in tokens if token != "*"]
    allowed = [_allowed(token) for token in tokens]
    if not all(allowed) or not (_may_end(allowed[0]) and _may_end(allowed[-1])):
        raise ValueError(f"{quoted(text)} matches no namespace: names begin and end with a letter or a digit")
    if len(single) > _LONGEST:
        raise ValueError(f"{quoted(text)} matches no namespace: names have at most {_LONGEST} characters")


def matches_any(patterns: Collection[str], name: str) -> bool:
    """Tell whether a namespace is named, or matched, by any of the patterns."""
    return name in patterns or any(_regex(pattern).fullmatch(name) for pattern in patterns if not is_namespace(pattern))


def _allowed(token: str) -> str:
    """Return the characters of names that a part of a pattern stands for."""
    return "".join(one for one in f"{_LETTERS}-" if _regex(token).fullmatch(one))


def _may_end(characters: str) -> bool:
    return any(one != "-" for one in characters)


@lru_cache(maxsize=1 << 10)
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))

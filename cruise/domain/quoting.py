"""Text of others inside of a message."""

_LONGEST = 40


def quoted(text: str) -> str:
    """Quote a text, cut where it is longer than what was meant could be."""
    return f'"{text}"' if len(text) <= _LONGEST else f'"{text[:_LONGEST]}…"'

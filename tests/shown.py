"""The text that a terminal of a given width shows."""

import io
from collections.abc import Callable, Iterable

from rich.console import Console, RenderableType
from rich.text import Text


def render_to_text(parts: Callable[[Console], Iterable[RenderableType]], width: int = 80) -> str:
    """Render the parts of a report without colour."""
    text = io.StringIO()
    console = Console(file=text, width=width, highlight=False, markup=False, emoji=False, color_system=None)
    for part in parts(console):
        console.print(part, soft_wrap=isinstance(part, Text) and part.no_wrap is True)
    return text.getvalue()

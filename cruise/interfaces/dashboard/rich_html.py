"""What commands print, as a page shows it: the same words, with classes in place of a terminal's colours."""

from collections.abc import Iterable, Iterator
from html import escape

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cruise.interfaces.plain_text import plain


def html_of(parts: Iterable[RenderableType]) -> str:
    """Return the parts as HTML: each text a paragraph, one in bold a heading, each table a table."""
    return "\n".join(html for part in parts for html in _html(part))


def _html(part: RenderableType) -> Iterator[str]:
    if isinstance(part, Text):
        is_heading = part.plain.startswith("\n") or str(part.style) == "bold"
        name = "h3" if is_heading else "p"
        yield f"<{name}{_class(str(part.style)) if not is_heading else ''}>{_spans(part)}</{name}>"
    elif isinstance(part, Table):
        yield '<div class="scroll" tabindex="0"><table class="steps">'
        yield from _rows(part)
        yield "</table></div>"
    elif isinstance(part, Padding):
        yield from _html(part.renderable)
    else:
        raise TypeError(f"{type(part).__name__} has no shape on a page")


def _rows(table: Table) -> Iterator[str]:
    numbers = [" class=n" if column.justify == "right" else "" for column in table.columns]
    cells_of_rows = zip(*(column.cells for column in table.columns), strict=True)
    for row, cells in zip(table.rows, cells_of_rows, strict=True):
        texts = [cell if isinstance(cell, Text) else Text(str(cell)) for cell in cells]
        if any(text.plain.strip() for text in texts):
            found = (f"<td{number}>{_spans(text)}</td>" for number, text in zip(numbers, texts, strict=True))
            yield f"<tr{_class(str(row.style or ''))}>{''.join(found)}</tr>"


def _spans(text: Text) -> str:
    """Return a text with its styles as classes; a style of the whole is the element's."""
    found = []
    for part in text.split("\n") if "\n" in text.plain.strip() else [text]:
        begun = 0
        for span in sorted(part.spans):
            if span.start < begun or span.start >= span.end:
                continue
            found.append(_escaped(part.plain[begun : span.start]))
            found.append(f"<span{_class(str(span.style))}>{_escaped(part.plain[span.start : span.end])}</span>")
            begun = span.end
        found.append(_escaped(part.plain[begun:]))
    whole = "".join(found).strip()
    return f"<span{_class(str(text.style))}>{whole}</span>" if str(text.style) else whole


def _class(style: str) -> str:
    names = [name for name in style.split() if name.isalpha()]
    return f' class="{" ".join(names)}"' if names else ""


def _escaped(text: str) -> str:
    return escape(plain(text.strip("\n")))

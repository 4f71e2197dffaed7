"""Headings of tables that are sorted here: each is a link that sorts by its column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode


@dataclass(frozen=True, slots=True)
class Column:
    """A column, sorted by as `key`; numbers stand right, and begin with the largest where `is_descending`."""

    title: str
    key: str
    is_number: bool = True
    is_descending: bool = True


@dataclass(frozen=True, slots=True)
class Heading:
    """A column's heading: `link` sorts by it, in the other direction where it does already (`sorted` up or down)."""

    column: Column
    link: str
    sorted: str


def headings_of(columns: Sequence[Column], stated: Mapping[str, str]) -> Sequence[Heading]:
    """Return the headings of a table whose query says `stated`: by what it is sorted, and whether `up`."""
    found = []
    for column in columns:
        is_sorted, is_up = column.key == stated["sort"], stated["up"] == "true"
        up = not is_up if is_sorted else not column.is_descending
        direction = ("ascending" if is_up else "descending") if is_sorted else ""
        link = query_of({**stated, "sort": column.key, "up": "true" if up else "false"})
        found.append(Heading(column, link, direction))
    return found


def query_of(stated: Mapping[str, str]) -> str:
    """Return a query without what is empty."""
    return "?" + urlencode({name: value for name, value in stated.items() if value})


def parts_around(stated: Mapping[str, str], offset: int, rows: int, total: int) -> tuple[str | None, str | None]:
    """Return the queries of the rows before and after those from `offset` on, None where there are none."""
    earlier, later = max(0, offset - rows), offset + rows
    return (
        query_of({**stated, "offset": str(earlier)}) if offset else None,
        query_of({**stated, "offset": str(later)}) if later < total else None,
    )

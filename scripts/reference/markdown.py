"""Pieces of generated Markdown pages."""

from collections.abc import Iterable, Sequence

GENERATED_NOTE = "<!-- Generated from the code by `make docs-reference`. Changes here are lost. -->"


def page(title: str, introduction: str, *parts: str) -> str:
    """Return a whole page."""
    return "\n\n".join([f"# {title}", GENERATED_NOTE, introduction, *parts]) + "\n"


def section(title: str, *parts: str) -> str:
    """Return a section with its heading."""
    return "\n\n".join([f"## {title}", *parts])


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; ValueError for an empty cell in the last column."""
    lines = [headings, ["---"] * len(headings)]
    for row in rows:
        if not row[-1].strip():
            raise ValueError(f"{row[0]} has no description")
        lines.append([cell.replace("\n", " ").replace("|", "\\|") for cell in row])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str) -> str:
    """Return a text as code."""
    return f"`{text}`"

"""The templates of pages for browsers."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from cruise.interfaces.plain_text import plain


def page_template(name: str) -> Template:
    """Return a template: what it puts in is escaped, and what it is not given is an error."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        finalize=_plain,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _plain(value: object) -> object:
    # What a macro made has gone through here already.
    return plain(value) if isinstance(value, str) and not hasattr(value, "__html__") else value

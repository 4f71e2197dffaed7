"""The templates of pages for browsers."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template


def page_template(name: str) -> Template:
    """Return a template: what it puts in is escaped, and what it is not given is an error."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)

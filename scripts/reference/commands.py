"""The reference page of commands, from their help."""

import re
from enum import Enum
from typing import Any

import typer

from cruise.cli.program import app
from scripts.reference.markdown import code, page, section, table

_INTRODUCTION = """Look up the commands of `cruise` and their options; every command has `--help`. Results are
written to standard output, everything else to standard error; with `--format json` standard
output has exactly one JSON document. The exit code is 0, 1 for a failure, 2 for bad input, 130
after an interruption. `cruise --version` prints the version."""


def commands_page() -> str:
    """Return the page."""
    group: Any = typer.main.get_command(app)
    names = table(
        ("command", "does"),
        ((f"[`cruise {name}`](#cruise-{name})", _summarize(one.help)) for name, one in group.commands.items()),
    )
    parts = [_render_command(name, one) for name, one in group.commands.items()]
    return page("Commands", _INTRODUCTION, names, *parts)


def _render_command(name: str, command: Any) -> str:  # noqa: ANN401 - typer's own
    text, _, examples = (command.help or "").partition("Examples:")
    shown = "\n".join(line.strip() for line in examples.splitlines() if line.strip())
    arguments = "".join(f" {one.metavar}" for one in command.params if one.param_type_name == "argument")
    parts = [f"```sh\ncruise {name} [OPTIONS]{arguments}\n```", " ".join(text.split())]
    rows = [_build_row(one) for one in command.params if not getattr(one, "hidden", False)]
    if rows:
        parts.append(table(("option", "value", "default", "meaning"), rows))
    if shown:
        parts.append(f"```sh\n{shown}\n```")
    return section(f"cruise {name}", *parts)


def _build_row(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - typer's own
    names = code(one.metavar) if one.param_type_name == "argument" else ", ".join(map(code, one.opts))
    annotation = one.type_descriptor.annotation
    if one.param_type_name == "argument" or getattr(one, "is_flag", False):
        value = ""
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        value = ", ".join(code(choice.value) for choice in annotation)
    else:
        value = code(one.metavar or annotation.__name__)
    known = one.default is not None and one.default is not False and getattr(one, "show_default", False)
    default = code(str(getattr(one.default, "value", one.default))) if known else ""
    if one.required:
        default = "required"
    return names, value, default, re.sub(r"\s+", " ", one.help or "")


def _summarize(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())

"""Commands whose repeatable options take several values at once: `--trace a b` is `--trace a --trace b`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from typer.core import TyperCommand, TyperOption

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.shell_completion import CompletionItem

_LAST = "cruise.several"


class SeveralValues(TyperCommand):
    """Reads `--option a b` as `--option a --option b` for some options, and lists the policies in its help."""

    several = ("--trace", "--policy", "--max-delta")

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Repeat the option before each of its values."""
        repeated, last = repeat_options(args, self.several)
        ctx.meta[_LAST] = last
        return super().parse_args(ctx, repeated)

    def get_help(self, ctx: "Context") -> str:
        """Add the names of the policies, which are read only here: that takes a third of a second."""
        from cruise.backtest.policies.policies import POLICIES

        for parameter in self.params:
            if isinstance(parameter, TyperOption) and parameter.name == "policy":
                parameter.help = f"{parameter.help}{', '.join(POLICIES)}."
        return super().get_help(ctx)

    def shell_complete(self, ctx: "Context", incomplete: str) -> "list[CompletionItem]":
        """Complete a further value of an option as its first one."""
        last = ctx.meta.get(_LAST)
        if last is not None and not incomplete.startswith("-"):
            for parameter in self.params:
                if last in parameter.opts:
                    return parameter.shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


def repeat_options(arguments: Sequence[str], several: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the arguments with each option before each of its values, and the option still open at their end."""
    found: list[str] = []
    current: str | None = None
    has_value = False
    for at, argument in enumerate(arguments):
        if argument == "--":
            return found + list(arguments[at:]), None
        if argument in several:
            current, has_value = argument, False
        elif argument.startswith("-"):
            name = argument.partition("=")[0]
            current, has_value = (name, True) if name in several and "=" in argument else (None, False)
        elif current is not None:
            if has_value:
                found.append(current)
            has_value = True
        found.append(argument)
    return found, current

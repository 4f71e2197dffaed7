"""`cruise resume`: let writes go on."""

from cruise.cli.options import ConfigOption, Format, FormatOption
from cruise.cli.running.steering import ServerOption, TokenOption, steer


def resume(
    server: ServerOption = None,
    token_file: TokenOption = None,
    format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Let writes to the cluster go on after `cruise pause`, from the next pass on.

    What was decided meanwhile is not made up for: the next pass decides anew.

    Examples:
      cruise resume

      cruise resume --server https://cruise.example.org --token-file token
    """
    steer(False, server, token_file, format, config)

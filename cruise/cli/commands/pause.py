"""`cruise pause`: stop every write at once."""

from cruise.cli.options import ConfigOption, Format, FormatOption
from cruise.cli.running.steering import ServerOption, TokenOption, steer


def pause(
    server: ServerOption = None,
    token_file: TokenOption = None,
    format: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Stop every write to the cluster at once; nothing is undone.

    The pause is kept in the store that the running cruise uses (database_url,
    or data_dir on its machine), and outlives restarts. From elsewhere, give
    --server and the token of its API.

    Examples:
      cruise pause

      cruise pause --server https://cruise.example.org --token-file token

      kubectl -n cruise exec deploy/cruise-serve -- cruise pause
    """
    steer(True, server, token_file, format, config)

"""`cruise pause` and `cruise resume`: stop every write at once, and let writes go on."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cruise.cli.options import ConfigOption, Format, FormatOption, optional, settings_of
from cruise.cli.terminal import print_parts, table_console, write_json
from cruise.errors import BadInput

if TYPE_CHECKING:
    from cruise.settings import Settings

ServerOption = Annotated[str | None, optional("--server", "URL", "The API of a cruise that runs elsewhere.")]
TokenOption = Annotated[Path | None, optional("--token-file", "FILE", "Its token; api_token_file if not given.")]


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
    _set_paused(True, server, token_file, format, config)


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
    _set_paused(False, server, token_file, format, config)


@dataclass(frozen=True, slots=True)
class _Before:
    """How it was before, and where it was changed, in words."""

    paused: bool
    place: str


def _set_paused(paused: bool, server: str | None, token_file: Path | None, format: Format, config: Path | None) -> None:
    """Pause or resume, and say what that means. Raises BadInput, Unavailable."""
    settings = settings_of(config)
    if server is not None:
        before = _through_api(paused, server, token_file or settings.api_token_file)
    elif token_file is not None:
        raise BadInput("--token-file needs --server: the store needs no token")
    else:
        before = asyncio.run(_in_store(paused, settings))
    if format is Format.JSON:
        import msgspec

        document = {"paused": paused, "pausedBefore": before.paused, "place": before.place}
        write_json([msgspec.json.encode(document) + b"\n"])
        return
    from rich.text import Text

    print_parts([Text(line) for line in _words(paused, before)], table_console())


def _words(paused: bool, before: _Before) -> list[str]:
    if paused is before.paused:
        return [f"Nothing changed: {'paused already' if paused else 'it was not paused'}, in {before.place}."]
    if paused:
        return [
            f"Paused, in {before.place}.",
            "Every running cruise sees it within a second and begins nothing more; a request that the API server "
            "has already is not called back. Passes go on and show what they would do.",
            "`cruise resume` lets writes go on, `cruise revert` puts back the original requests.",
        ]
    return [f"Resumed, in {before.place}.", "Writes go on with the next pass."]


def _through_api(paused: bool, server: str, token_file: Path | None) -> _Before:
    from cruise.adapters.api_client import ApiClient

    client = ApiClient(server, token_file)
    before = client.paused()
    client.set_paused(paused)
    return _Before(before, client.place)


async def _in_store(paused: bool, settings: "Settings") -> _Before:
    from cruise.app.clock import wall_clock
    from cruise.app.local_caller import local_caller
    from cruise.cli.inputs.store import known_store, store_place
    from cruise.domain.callers import Deed, Intervention

    async with known_store(settings) as store:
        before = await store.paused()
        await store.record_intervention(
            Intervention(wall_clock(), local_caller(), Deed.PAUSE if paused else Deed.RESUME)
        )
        await store.set_paused(paused)
    return _Before(before, store_place(settings))

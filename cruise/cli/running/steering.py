"""The pause from the command line: in the store, or through the API of a cruise that runs elsewhere."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.options import Format, settings_of
from cruise.cli.terminal import print_parts, table_console, write_document
from cruise.errors import BadInput

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from cruise.adapters.store.postgres import PostgresStore
    from cruise.settings import Settings

ServerOption = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="The API of a cruise that runs elsewhere.", show_default=False),
]
TokenOption = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="Its token; api_token_file if not given.", show_default=False),
]


@dataclass(frozen=True, slots=True)
class Steered:
    """How it was before, and where it was changed, in words."""

    paused_before: bool
    place: str


def steer(paused: bool, server: str | None, token_file: Path | None, format: Format, config: Path | None) -> None:
    """Pause or resume, and say what that means. Raises BadInput, Unavailable."""
    settings = settings_of(config)
    if server is not None:
        steered = _through_api(paused, server, token_file or settings.api_token_file)
    elif token_file is not None:
        raise BadInput("--token-file needs --server: the store asks for no token")
    else:
        steered = asyncio.run(_in_store(paused, settings))
    if format is Format.JSON:
        import msgspec

        document = {"paused": paused, "pausedBefore": steered.paused_before, "place": steered.place}
        write_document([msgspec.json.encode(document) + b"\n"])
        return
    from rich.text import Text

    print_parts([Text(line) for line in _words(paused, steered)], table_console())


def _words(paused: bool, steered: Steered) -> list[str]:
    if paused is steered.paused_before:
        return [f"Nothing changed: {'paused already' if paused else 'it was not paused'}, in {steered.place}."]
    if paused:
        return [
            f"Paused, in {steered.place}.",
            "Whoever writes sees it within a second and begins nothing more; a request that the API server has already "
            "is not called back. Passes go on and show what they would do.",
            "`cruise resume` lets writes go on, `cruise revert` puts back the original requests.",
        ]
    return [f"Resumed, in {steered.place}.", "Writes go on with the next pass."]


def _through_api(paused: bool, server: str, token_file: Path | None) -> Steered:
    from cruise.adapters.api_client import ApiClient

    client = ApiClient(server, token_file)
    before = client.paused()
    client.set_paused(paused)
    return Steered(before, client.place)


async def _in_store(paused: bool, settings: "Settings") -> Steered:
    async with known_store(settings) as store:
        before = await store.paused()
        await store.set_paused(paused)
    return Steered(before, store_place(settings))


def known_store(
    settings: "Settings", elsewhere: str = "give --server URL of its API, or "
) -> "AbstractAsyncContextManager[PostgresStore]":
    """Open the store that a controller uses, and make none; `elsewhere` is what else may be done.

    Raises BadInput where nothing was ever stored: then no cruise with these settings runs, and a flag set there
    would stop nobody.
    """
    from cruise.adapters.store.opening import open_store
    from cruise.cli.gathering.stored import do_not_wait, has_store

    data_dir = _data_dir(settings)
    if not has_store(settings):
        raise BadInput(
            f"no cruise keeps its records under {data_dir} on this machine; set database_url to the database of the "
            f"one that runs, or {elsewhere}run this command beside it (kubectl exec)"
        )
    return open_store(settings.database_url, data_dir, do_not_wait)


def store_place(settings: "Settings") -> str:
    """Name the store for people, so that nobody takes it for another cluster's."""
    if settings.database_url is None:
        return f"the embedded Postgres under {_data_dir(settings)}, of a cruise that runs on this machine"
    from cruise.adapters.store.connection import dsn_of, place_of

    return f"Postgres at {place_of(dsn_of(settings.database_url))}"


def _data_dir(settings: "Settings") -> Path:
    from cruise.adapters.store.embedded_postgres import default_data_dir

    return settings.data_dir or default_data_dir(os.environ)

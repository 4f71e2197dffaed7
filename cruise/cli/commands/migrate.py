"""`cruise migrate`: the database's schema brought up to date by the role that owns it."""

import asyncio
from typing import TYPE_CHECKING

from cruise.cli.options import ConfigOption, Format, FormatOption, settings_of
from cruise.cli.terminal import busy, print_result, quiet_logs
from cruise.errors import BadInput

if TYPE_CHECKING:
    from cruise.settings import Settings


def migrate(format: FormatOption = Format.TABLE, config: ConfigOption = None) -> None:
    """Bring the schema of database_url up to date, as a role that may; then end.

    Where `cruise serve` and `cruise webhook` have roles that may not, they
    wait for this. A role that may make tables needs no such step: serve
    brings the schema up to date when it starts.

    Examples:
      CRUISE_DATABASE_URL=postgresql://cruise_owner@db/cruise cruise migrate

      cruise migrate --format json
    """
    import msgspec

    settings = settings_of(config)
    if settings.database_url is None:
        raise BadInput("no database_url is set; the embedded database is brought up to date by `cruise serve`")
    with quiet_logs(), busy("bringing the schema up to date"):
        before, after = asyncio.run(_migrated(settings))
    words = f"schema {after}" + (": nothing to do" if before == after else f", before {before or 'none'}")
    print_result(
        format is Format.JSON,
        lambda: [msgspec.json.encode({"before": before, "after": after})],
        lambda console: [words],
    )


async def _migrated(settings: "Settings") -> tuple[str | None, str | None]:
    """Return the schema's revision before and after."""
    from cruise.adapters.store.probing import probe_store
    from cruise.cli.inputs.store import data_dir_of, known_store

    before = await probe_store(settings.database_url, data_dir_of(settings))
    async with known_store(settings):
        pass
    after = await probe_store(settings.database_url, data_dir_of(settings))
    return before.revision, after.revision

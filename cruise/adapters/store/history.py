"""The epoch of the database: grows with what is stored, so that an earlier state is recognised."""

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.tables import database_history
from cruise.domain.database_history import DatabaseHistory
from cruise.errors import HistoryChanged


async def advance(connection: AsyncConnection, expected: int) -> int:
    """Advance the epoch; return it. Raises HistoryChanged where it is before the expected one."""
    table = database_history
    begun = upsert(table).values(singleton=True, epoch=1, lost_until=0, regained=True)
    advanced = begun.on_conflict_do_update(index_elements=["singleton"], set_={"epoch": table.c.epoch + 1})
    epoch = int(await connection.scalar(advanced.returning(table.c.epoch)) or 0)
    _compare(epoch - 1, expected)
    return epoch


async def read(connection: AsyncConnection, expected: int) -> DatabaseHistory:
    """Return what the database says of its past. Raises HistoryChanged where its epoch is before the expected one."""
    row = (await connection.execute(select(database_history))).first()
    found = DatabaseHistory() if row is None else DatabaseHistory(row.epoch, row.lost_until, row.regained)
    _compare(found.epoch, expected)
    return found


async def note_lost(connection: AsyncConnection, expected: int, until: int, *, regained: bool) -> int:
    """Put on record until when usage was lost; return the epoch, which is after the expected one."""
    table = database_history
    await connection.execute(
        upsert(table)
        .values(singleton=True, epoch=0, lost_until=0, regained=True)
        .on_conflict_do_nothing(index_elements=["singleton"])
    )
    values = {
        "epoch": func.greatest(table.c.epoch, expected) + 1,
        "lost_until": func.greatest(table.c.lost_until, until),
        "regained": regained,
    }
    return int(await connection.scalar(update(table).values(values).returning(table.c.epoch)) or 0)


def _compare(epoch: int, expected: int) -> None:
    if epoch < expected:
        raise HistoryChanged(f"the database is at epoch {epoch}, and was at {expected} before")

"""What the webhook signs its annotations with: made here, so that no account needs a right for it."""

import secrets
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.tables import signing_key
from cruise.domain.retention import RETENTION

_BYTES = 32


async def latest_first(connection: AsyncConnection) -> Sequence[bytes]:
    """Return the keys, the one that signs first."""
    found = await connection.execute(select(signing_key.c.key).order_by(signing_key.c.since.desc()))
    return [bytes(row.key) for row in found]


async def renew(connection: AsyncConnection, now: datetime) -> None:
    """Make a key where there is none or the latest is old, and drop those that nothing in use was signed with."""
    latest = (await connection.execute(select(func.max(signing_key.c.since)))).scalar()
    if latest is None or now - latest >= RETENTION.signing_key:
        made = insert(signing_key).values(since=now, key=secrets.token_bytes(_BYTES))
        await connection.execute(made.on_conflict_do_nothing())
    lasting = RETENTION.signing_key + RETENTION.original_sizes
    await connection.execute(delete(signing_key).where(signing_key.c.since < now - lasting))

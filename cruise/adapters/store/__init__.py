"""The store in Postgres, embedded or by URL: the only home of SQLAlchemy, Alembic and asyncpg."""

from cruise.adapters.store.opening import open_store
from cruise.adapters.store.postgres import PostgresStore

__all__ = ["PostgresStore", "open_store"]

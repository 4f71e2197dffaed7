"""The store in Postgres, embedded or by URL: the only home of SQLAlchemy, Alembic and asyncpg."""

from cruise.adapters.store.postgres import PostgresStore, open_store

__all__ = ["PostgresStore", "open_store"]

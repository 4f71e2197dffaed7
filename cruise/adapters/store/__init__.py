"""The database: Postgres by URL, or embedded. Only this package uses SQLAlchemy, Alembic and asyncpg."""

from cruise.adapters.store.postgres import PostgresStore, open_store

__all__ = ["PostgresStore", "open_store"]

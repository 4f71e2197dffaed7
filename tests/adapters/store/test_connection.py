"""Conversion of database URLs to the driver's form; passwords never appear in messages."""

import pytest

from cruise.adapters.store.connection import convert_to_dsn, describe_database
from cruise.adapters.store.postgres import open_store
from cruise.errors import BadInputError
from tests.postgres_servers import PASSWORD, DebianServer


@pytest.mark.parametrize(
    ("given", "dsn"),
    [
        ("postgresql://u:p@db:5433/cruise", "postgresql://u:p@db:5433/cruise"),
        ("postgres://u@db/cruise", "postgresql://u@db/cruise"),
        ("postgresql+asyncpg://u@db/cruise", "postgresql://u@db/cruise"),
        ("postgresql+psycopg://u@db/cruise", "postgresql://u@db/cruise"),
        ("postgresql://u@db/c?ssl=require", "postgresql://u@db/c?sslmode=require"),
        (
            "postgresql://u@db/c?sslmode=verify-full&sslrootcert=/etc/ca.crt",
            "postgresql://u@db/c?sslmode=verify-full&sslrootcert=/etc/ca.crt",
        ),
        ("postgresql://u@/c?host=/run/postgresql", "postgresql://u@/c?host=/run/postgresql"),
    ],
)
def test_every_form_of_url_becomes_the_drivers(given, dsn):
    assert convert_to_dsn(given) == dsn


@pytest.mark.parametrize(
    "url", ["mysql://u:s3cret@db/c", "s3cret", "", "postgresql://u:s3cret@db:port/c", "postgresql://u:s3cret@[db/c"]
)
def test_other_urls_are_refused_in_one_line_without_the_password(url):
    with pytest.raises(BadInputError) as refused:
        convert_to_dsn(url)
    assert "s3cret" not in str(refused.value)
    assert "database_url" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_names_a_database_without_user_and_password():
    assert describe_database("postgresql://u:s3cret@db:5433/cruise?sslmode=require") == "db:5433/cruise"
    assert describe_database("postgresql://postgres@/postgres?host=/var/lib/cruise") == "/var/lib/cruise/postgres"


def unexpected(line: str) -> None:
    raise AssertionError(f"this heals by no waiting: {line}")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda url: url.replace("pass%20word", "wrong"), "password authentication failed"),
        (lambda url: url.removesuffix("/postgres") + "/missing", '"missing" does not exist'),
        (lambda url: url.replace("//postgres:", "//nobody-known:"), "authentication failed"),
        (lambda url: f"{url}?sslmode=require", "sslmode"),
        (lambda url: f"{url}?sslmode=perhaps", "sslmode"),
        (lambda url: f"{url}?no_such_setting=1", "no_such_setting"),
    ],
    ids=["password", "database", "user", "no SSL there", "SSL mode", "parameter"],
)
async def test_reports_an_invalid_url_in_one_line(debian_postgres: DebianServer, change, says):
    with pytest.raises(BadInputError) as refused:
        async with open_store(change(debian_postgres.url), debian_postgres.directory, unexpected):
            pass
    line = str(refused.value)
    assert says in line
    assert "\n" not in line
    assert PASSWORD not in line and "pass%20word" not in line

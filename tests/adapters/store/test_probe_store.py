"""Probing the database creates and changes nothing."""

import secrets

import asyncpg

from cruise.adapters.store.postgres import open_store, probe_store
from cruise.domain.records import RiskDay
from cruise.domain.resources import ResourceName
from tests.builders import make_pod, make_statistic_for, make_table
from tests.postgres_servers import dsn_below

RISK_DAY = RiskDay(ResourceName.CPU, 20_000, 3, 1, 0.5)


async def test_an_embedded_one_that_was_never_made_is_not_made(tmp_path):
    facts = await probe_store(None, tmp_path / "data")
    assert (facts.is_embedded, facts.exists, facts.problem) == (True, False, "")
    assert not (tmp_path / "data").exists()


async def test_probing_creates_no_tables(embedded_postgres):
    name = f"probe_{secrets.token_hex(4)}"
    connection = await asyncpg.connect(dsn_below(embedded_postgres))
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    url = f"postgresql://postgres@/{name}?host={embedded_postgres}/postgres"
    for _ in range(2):
        empty = await probe_store(url, embedded_postgres)
        assert (empty.is_embedded, empty.revision, empty.problem) == (False, None, "")
    async with open_store(url, embedded_postgres, print) as store:
        await store.record_risk_days([RISK_DAY])
        await store.write_statistics(make_table(make_statistic_for(make_pod())))
    filled = await probe_store(url, embedded_postgres)
    assert filled.revision == filled.expected_revision is not None
    assert filled.risk_days == [RISK_DAY]
    assert filled.statistics is not None and len(filled.statistics.keys) == 1


async def test_reports_a_problem_without_the_password(tmp_path):
    gone = await probe_store("postgresql://cruise:s3cret@127.0.0.1:1/cruise", tmp_path)
    assert "nothing listens there" in gone.problem
    wrong = await probe_store("mysql://cruise:s3cret@db/cruise", tmp_path)
    assert "must begin with postgresql://, not with mysql://" in wrong.problem
    assert "must begin with postgresql:// (" in (await probe_store("cruise", tmp_path)).problem
    assert "s3cret" not in gone.problem + wrong.problem + gone.location + wrong.location

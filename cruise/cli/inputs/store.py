"""The store that a controller on this machine or elsewhere uses, and what it knows of one pod."""

import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cruise.adapters.store.connection import dsn_of, place_of
from cruise.adapters.store.embedded_postgres import default_data_dir
from cruise.adapters.store.opening import open_store
from cruise.adapters.store.postgres import PostgresStore
from cruise.decisions.explaining.past import Past, past_of
from cruise.decisions.sizing.headroom.model import Headroom
from cruise.domain.actions import RefusedTarget
from cruise.domain.cluster import Pod
from cruise.domain.overrides import StoredOverrides
from cruise.domain.retention import RETENTION
from cruise.domain.usage import StatisticsTable
from cruise.errors import BadInput, Unavailable
from cruise.runtime.sizing.pass_headroom import stored_headroom
from cruise.settings import Settings

_MOST_OUTCOMES = 100_000


@dataclass(frozen=True, slots=True)
class Remembered:
    """What there is: all statistics (none without a pod to decide), those that speak for the pod, and its past.

    `headroom` is the model as the node pass would prepare it for the statistics.
    """

    statistics: StatisticsTable
    own_statistics: StatisticsTable
    overrides: StoredOverrides
    refused: Mapping[str, RefusedTarget]
    past: Past
    headroom: Headroom


async def remembered(settings: Settings, name: tuple[str, str], pod: Pod | None, now: datetime) -> Remembered:
    """Read what is known of the pod of that namespace and name; `pod` as the snapshot has it, if there is one.

    Raises BadInput where nothing was ever stored, Unavailable where the database does not answer.
    """
    namespace, pod_name = name
    if not has_store(settings):
        raise BadInput(
            f"nothing is stored under {data_dir_of(settings)}; "
            "give --snapshot and --usage, or set database_url or data_dir"
        )
    async with _open(settings) as store:
        whole = StatisticsTable.of_rows([]) if pod is None else await store.read_statistics()
        workload = str(pod.workload) if pod is not None and pod.workload is not None else ""
        identity = pod.identity if pod is not None else ""
        own = await store.statistics_of_pod(namespace, pod_name, workload, identity)
        if pod is None and own.keys:
            # Without a snapshot the pod's own statistics tell its workload.
            workload, identity = own.keys[0].workload, own.keys[0].identity
        since_hour = int((now - RETENTION.hourly_peaks).timestamp()) // 3600
        past = past_of(
            namespace,
            pod_name,
            workload,
            identity,
            await store.outcomes(now - RETENTION.outcomes, _MOST_OUTCOMES),
            await store.oom_records(now - RETENTION.oom_records),
            await store.hourly_peaks(namespace, workload or f"Pod/{pod_name}", since_hour),
        )
        headroom = await stored_headroom(store, whole, settings.policy())
        return Remembered(whole, own, await store.overrides(), await store.refused_targets(), past, headroom)


def known_store(
    settings: Settings, elsewhere: str = "give --server URL of its API, or "
) -> AbstractAsyncContextManager[PostgresStore]:
    """Open the store that a controller uses, and make none; `elsewhere` is what else may be done.

    Raises BadInput where nothing was ever stored: then no cruise with these settings runs, and a flag set there
    would stop none.
    """
    if not has_store(settings):
        raise BadInput(
            f"no cruise keeps its records under {data_dir_of(settings)} on this machine; set database_url to the "
            f"database of the one that runs, or {elsewhere}run this command beside it (kubectl exec)"
        )
    return _open(settings)


def has_store(settings: Settings) -> bool:
    """Tell whether there is a database to open; opening the embedded one would else make it."""
    return settings.database_url is not None or (data_dir_of(settings) / "postgres").exists()


def store_place(settings: Settings) -> str:
    """Name the store for people, so that it is not taken for another cluster's."""
    if settings.database_url is None:
        return f"the embedded Postgres under {data_dir_of(settings)}, of a cruise that runs on this machine"
    return f"Postgres at {place_of(dsn_of(settings.database_url))}"


def data_dir_of(settings: Settings) -> Path:
    """Return the directory of the embedded database."""
    return settings.data_dir or default_data_dir(os.environ)


def _open(settings: Settings) -> AbstractAsyncContextManager[PostgresStore]:
    return open_store(settings.database_url, data_dir_of(settings), _do_not_wait, settings.database_timeout)


def _do_not_wait(message: str) -> None:
    """Give up instead of waiting for a database, as a person is looking on. Raises Unavailable."""
    raise Unavailable(message.removeprefix("waiting: "))

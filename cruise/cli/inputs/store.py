"""The store that a controller on this machine or elsewhere uses, and what it knows of one pod."""

import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cruise.adapters.store.connection import convert_to_dsn, describe_database
from cruise.adapters.store.embedded_postgres import get_default_data_dir
from cruise.adapters.store.postgres import PostgresStore, open_store
from cruise.decisions.pod_history import PodHistory, build_pod_history
from cruise.decisions.sizing.headroom import HeadroomModel
from cruise.domain.actions import RefusedResize
from cruise.domain.cluster import Pod
from cruise.domain.overrides import StoredOverrides
from cruise.domain.records import RETENTION
from cruise.domain.usage import StatisticsTable
from cruise.errors import BadInputError, UnavailableError
from cruise.runtime.headroom import prepare_stored_headroom
from cruise.settings import Settings

_MOST_OUTCOMES = 100_000


@dataclass(frozen=True, slots=True)
class StoredPodData:
    """What there is: all statistics (none without a pod to decide), those that speak for the pod, and its past.

    `headroom` is the model as the node pass would prepare it for the statistics.
    """

    statistics: StatisticsTable
    own_statistics: StatisticsTable
    overrides: StoredOverrides
    refused: Mapping[str, RefusedResize]
    past: PodHistory
    headroom: HeadroomModel


async def read_stored_pod_data(
    settings: Settings, name: tuple[str, str], pod: Pod | None, now: datetime
) -> StoredPodData:
    """Read what is known of the pod of that namespace and name; `pod` as the snapshot has it, if there is one.

    Raises BadInputError where nothing was ever stored, Unavailable where the database does not answer.
    """
    namespace, pod_name = name
    if not has_existing_store(settings):
        raise BadInputError(
            f"nothing is stored under {get_data_dir(settings)}; "
            "give --snapshot and --usage, or set database_url or data_dir"
        )
    async with _open(settings) as store:
        whole = StatisticsTable.from_rows([]) if pod is None else await store.read_statistics()
        workload = str(pod.workload) if pod is not None and pod.workload is not None else ""
        identity = pod.identity if pod is not None else ""
        own = await store.statistics_of_pod(namespace, pod_name, workload, identity)
        if pod is None and own.keys:
            # Without a snapshot the pod's own statistics tell its workload.
            workload, identity = own.keys[0].workload, own.keys[0].identity
        since_hour = int((now - RETENTION.hourly_peaks).timestamp()) // 3600
        past = build_pod_history(
            namespace,
            pod_name,
            workload,
            identity,
            await store.outcomes(now - RETENTION.outcomes, _MOST_OUTCOMES),
            await store.oom_records(now - RETENTION.oom_records),
            await store.hourly_peaks(namespace, workload or f"Pod/{pod_name}", since_hour),
        )
        headroom = await prepare_stored_headroom(store, whole, settings.to_policy())
        return StoredPodData(whole, own, await store.overrides(), await store.refused_resizes(), past, headroom)


def open_existing_store(
    settings: Settings, elsewhere: str = "give --server URL of its API, or "
) -> AbstractAsyncContextManager[PostgresStore]:
    """Open the store that a controller uses, and make none; `elsewhere` is what else may be done.

    Raises BadInputError where nothing was ever stored: then no cruise with these settings runs, and a flag set there
    would stop none.
    """
    if not has_existing_store(settings):
        raise BadInputError(
            f"no cruise keeps its records under {get_data_dir(settings)} on this machine; set database_url to the "
            f"database of the one that runs, or {elsewhere}run this command beside it (kubectl exec)"
        )
    return _open(settings)


def has_existing_store(settings: Settings) -> bool:
    """Tell whether there is a database to open; opening the embedded one would else make it."""
    return settings.database_url is not None or (get_data_dir(settings) / "postgres").exists()


def describe_store(settings: Settings) -> str:
    """Name the store for people, so that it is not taken for another cluster's."""
    if settings.database_url is None:
        return f"the embedded Postgres under {get_data_dir(settings)}, of a cruise that runs on this machine"
    return f"Postgres at {describe_database(convert_to_dsn(settings.database_url))}"


def get_data_dir(settings: Settings) -> Path:
    """Return the directory of the embedded database."""
    return settings.data_dir or get_default_data_dir(os.environ)


def _open(settings: Settings) -> AbstractAsyncContextManager[PostgresStore]:
    return open_store(settings.database_url, get_data_dir(settings), _do_not_wait, settings.database_statement_timeout)


def _do_not_wait(message: str) -> None:
    """Give up instead of waiting for a database, as a person is looking on. Raises Unavailable."""
    raise UnavailableError(message.removeprefix("waiting: "))

"""The database of a controller, and its data about one pod."""

import os
from collections.abc import Mapping, Sequence
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
from cruise.domain.overrides import PausedWorkloads
from cruise.domain.records import RETENTION
from cruise.domain.usage import StatisticsTable
from cruise.errors import BadInputError, UnavailableError
from cruise.runtime.headroom import prepare_stored_headroom
from cruise.runtime.usage.usage_pass import read_statistics_for_pods
from cruise.settings import Settings

_MAXIMUM_OUTCOMES = 100_000


@dataclass(frozen=True, slots=True)
class StoredPodData:
    """All statistics (none without a pod), those of the pod, and its history.

    `headroom` is the model as a node pass would prepare it.
    """

    statistics: StatisticsTable
    own_statistics: StatisticsTable
    paused_workloads: PausedWorkloads
    refused: Mapping[str, RefusedResize]
    history: PodHistory
    headroom: HeadroomModel


async def read_stored_pod_data(
    settings: Settings, name: tuple[str, str], pod: Pod | None, now: datetime, pods: Sequence[Pod] = ()
) -> StoredPodData:
    """Read the data of a pod; `pod` is from the snapshot, or None, and `pods` are all of the snapshot.

    BadInputError if there is no database, UnavailableError if it does not answer.
    """
    namespace, pod_name = name
    if not has_existing_store(settings):
        raise BadInputError(
            f"no database under {get_data_dir(settings)}; add --snapshot and --usage, or set database_url or data_dir"
        )
    async with _open(settings) as store:
        statistics = StatisticsTable.from_rows([]) if pod is None else await read_statistics_for_pods(store, pods)
        workload = str(pod.workload) if pod is not None and pod.workload is not None else ""
        identity = pod.identity if pod is not None else ""
        own = await store.read_pod_statistics(namespace, pod_name, workload, identity)
        if pod is None and own.keys:
            # Without a snapshot the pod's statistics have its workload.
            workload, identity = own.keys[0].workload, own.keys[0].identity
        since_hour = int((now - RETENTION.hourly_peaks).timestamp()) // 3600
        history = build_pod_history(
            namespace,
            pod_name,
            workload,
            identity,
            await store.read_outcomes(now - RETENTION.outcomes, _MAXIMUM_OUTCOMES),
            await store.read_oom_records(now - RETENTION.oom_records, (namespace, workload) if workload else None),
            await store.read_workload_peaks(namespace, workload or f"Pod/{pod_name}", since_hour),
        )
        headroom = await prepare_stored_headroom(store, statistics, settings.to_policy())
        return StoredPodData(
            statistics, own, await store.read_paused_workloads(), await store.read_refused_resizes(), history, headroom
        )


def open_existing_store(
    settings: Settings, alternative: str = "add --server with the URL of its API, or "
) -> AbstractAsyncContextManager[PostgresStore]:
    """Open the database of a controller without creating one; `alternative` is another way for the user.

    BadInputError if there is none: then no cruise with these settings runs.
    """
    if not has_existing_store(settings):
        raise BadInputError(
            f"no database of cruise under {get_data_dir(settings)} on this machine; set database_url to the "
            f"running cruise's database, or {alternative}run this command in its pod (kubectl exec)"
        )
    return _open(settings)


def has_existing_store(settings: Settings) -> bool:
    """Return whether a database exists; opening the embedded one would create it."""
    return settings.database_url is not None or (get_data_dir(settings) / "postgres").exists()


def describe_store(settings: Settings) -> str:
    """Describe the database for messages."""
    if settings.database_url is None:
        return f"the embedded Postgres under {get_data_dir(settings)} on this machine"
    return f"Postgres at {describe_database(convert_to_dsn(settings.database_url))}"


def get_data_dir(settings: Settings) -> Path:
    """Return the directory of the embedded database."""
    return settings.data_dir or get_default_data_dir(os.environ)


def _open(settings: Settings) -> AbstractAsyncContextManager[PostgresStore]:
    return open_store(
        settings.database_url, get_data_dir(settings), _fail_instead_of_waiting, settings.database_statement_timeout
    )


def _fail_instead_of_waiting(message: str) -> None:
    """Raise UnavailableError instead of waiting for the database."""
    raise UnavailableError(message.removeprefix("waiting: "))

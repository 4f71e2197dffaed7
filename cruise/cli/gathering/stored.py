"""What the store knows of one pod, read for `cruise explain`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from cruise.adapters.store.embedded_postgres import default_data_dir
from cruise.adapters.store.opening import open_store
from cruise.decisions.explaining.past import Past, past_of
from cruise.decisions.sizing.headroom.model import Headroom
from cruise.domain.actions import RefusedTarget
from cruise.domain.cluster import Pod
from cruise.domain.overrides import StoredOverrides
from cruise.domain.retention import RETENTION
from cruise.domain.usage import StatisticsTable
from cruise.errors import BadInput, Unavailable
from cruise.runtime.sizing.stored_headroom import stored_headroom
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
    data_dir = settings.data_dir or default_data_dir(os.environ)
    if not has_store(settings):
        raise BadInput(
            f"nothing is stored under {data_dir}; give --snapshot and --usage, or set database_url or data_dir"
        )
    async with open_store(settings.database_url, data_dir, do_not_wait) as store:
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


def has_store(settings: Settings) -> bool:
    """Tell whether there is a database to open; opening the embedded one would else make it."""
    data_dir = settings.data_dir or default_data_dir(os.environ)
    return settings.database_url is not None or (data_dir / "postgres").exists()


def do_not_wait(message: str) -> None:
    """Give up instead of waiting for a database: who calls is looking on. Raises Unavailable."""
    raise Unavailable(message.removeprefix("waiting: "))

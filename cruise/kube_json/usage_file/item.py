"""One item of a UsageStatistics file, as a msgspec struct."""

from cruise.kube_json.wire.pod_json import Timestamp, Wire


class CpuUsage(Wire, frozen=True):
    """CPU statistics of a usage item."""

    base_millicores: int | float
    peak_millicores: int | float


class MemoryUsage(Wire, frozen=True):
    """Memory statistics of a usage item; `last_bytes` is the newest working set, the base where it is absent."""

    base_bytes: int | float
    peak_bytes: int | float
    max7d_bytes: int | float
    oom_bytes: int | float
    last_bytes: int | float | None = None


class UsageItem(Wire, frozen=True):
    """One item of a UsageStatistics file."""

    namespace: str
    container: str
    updated_at: Timestamp
    cpu: CpuUsage
    memory: MemoryUsage
    pod: str | None = None
    workload: str | None = None
    history_since: Timestamp | None = None

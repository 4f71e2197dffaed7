"""The queries of CruiseKube's statistics pass for one namespace, in their published form, to measure their cost.

Thirteen instant queries and two range queries: usage is joined with the pods' owners at every step of every subquery.
"""

from dataclasses import dataclass

WEEK = 7 * 24 * 3600
OWNER = "created_by_kind, created_by_name"
BY_WORKLOAD = f"max by ({OWNER}, namespace, container)"


@dataclass(frozen=True, slots=True)
class Query:
    """One query; a range query has a span and a step in seconds."""

    text: str
    span: int = 0
    step: int = 0


def statistics_pass(namespace: str) -> list[Query]:
    """Return all queries of a pass for a namespace, without the three for pressure."""
    owners = (
        f'max by ({OWNER}, namespace, pod, node) (kube_pod_info{{job="kube-state-metrics",namespace="{namespace}"}})'
    )
    selector = f'{{job="kubelet",namespace="{namespace}",container!="",container!="POD"}}'
    joined = f"* on (namespace, pod, node) group_left ({OWNER}) ({owners})"
    cpu = f"{BY_WORKLOAD} (rate(container_cpu_usage_seconds_total{selector}[1m]) {joined})"
    memory = f"{BY_WORKLOAD} (container_memory_working_set_bytes{selector} {joined})"
    limits = f'kube_pod_container_resource_limits{{job="kube-state-metrics",namespace="{namespace}"}}'
    killed = f'kube_pod_container_status_last_terminated_reason{{namespace="{namespace}",reason="OOMKilled"}}'
    return [
        *(Query(f"quantile_over_time({share}, ({cpu})[10m:1m])") for share in (0.5, 0.75)),
        Query(f"max_over_time(({cpu})[10m:1m])"),
        Query(f"quantile_over_time(0.75, ({memory})[30m:1m])"),
        Query(f"max_over_time(({memory})[30m:1m])"),
        Query(f"max_over_time(({memory})[7d:1m])"),
        *(Query(f"quantile_over_time({share}, ({cpu})[7d:1m])") for share in (0.5, 0.75, 0.9, 0.99)),
        Query(f"max_over_time(({cpu})[7d:1m])"),
        Query(f"max_over_time(({limits} * on (namespace, pod, container) {killed})[30m:1m])"),
        Query(f"quantile_over_time(0.5, (count by ({OWNER}, namespace) ({owners}))[7d:1h])"),
        Query(f"max_over_time(({cpu})[1h:1m])", WEEK, 3600),
        Query(f"max_over_time(({memory})[1h:1m])", WEEK, 3600),
    ]

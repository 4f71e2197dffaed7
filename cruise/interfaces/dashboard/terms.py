"""The explanations of terms and column headings, which pages show on hover and focus."""

from collections.abc import Mapping

_PACKING_PLAN = (
    "Resizes, evictions and placements that let pending pods run (cruise pack) or that drain nodes (consolidation). It "
    "is carried out in stages. What eviction budgets defer is planned in further rounds."
)
# Definitions of docs/glossary.md.
TERMS: Mapping[str, str] = {
    "base": (
        "What a container usually uses: the 75th percentile of its samples, CPU over the last 10 minutes "
        "and memory over the last 30."
    ),
    "peak": (
        "The most a container uses at this time of day: the largest sample of the last hour, and of the "
        "same hour of the day on the last seven days."
    ),
    "headroom": (
        "The capacity above their bases that the pods of a node share for their peaks. A headroom model "
        "says how much of it a node needs."
    ),
    "stated risk": (
        "The share of intervals in which a node's demand may exceed its pods' requests (cpu_risk, "
        "memory_risk). The observed risk is the share in which it did."
    ),
    "coverage": (
        "The share of all requests that is sized. The rest is skipped, each resource of each pod for one reason. "
        "What is reclaimable behind a reason is what its pods would not request if the reason were unlocked; it "
        "is unknown for pods without usable statistics or with a second reason."
    ),
    "saved": (
        "What the pods on nodes requested before cruise, minus what they request now, of pods whose original sizes are "
        "known. Its monthly cost, like that of what is reclaimable, is its price for 730 hours."
    ),
    "target": "What a container should request, from its statistics and its bounds.",
    "planned": (
        "What a container requests after this pass: the target, limited by free capacity, quotas and write damping."
    ),
    "reclaimable": "Requested minus target. In a total, what some workloads need more of is subtracted.",
    "skipped pods": "A pod, node or template that cruise does not change now. The skip reason says why.",
    "effective settings": (
        "The settings that apply to one pod once its annotations, those of its workload and namespace, and "
        "policy objects are resolved, the nearest first."
    ),
    "packing plan": _PACKING_PLAN,
    "consolidation": _PACKING_PLAN,
    "what-if run": "A replay of the cluster's recorded usage under changed settings, before they are applied.",
}
# Column headings that are no terms of the glossary.
HEADINGS: Mapping[str, str] = {
    "requests": "What pods on nodes request, as kube-scheduler counts it: the sized part first, then each skip reason.",
    "pods": "Pods on nodes that have not finished.",
    "cpu cores": "The requested cores, and their share of all requested cores.",
    "memory gib": "The requested GiB of memory, and their share of all requested memory.",
    "cpu requested": "The CPU that the pods request, as kube-scheduler counts it.",
    "memory requested": "The memory that the pods request, as kube-scheduler counts it.",
    "sized": "The share of the requested CPU and of the requested memory that is sized.",
    "used": "The sum of the bases: what the containers usually use.",
    "requested": "What the pods request now, as kube-scheduler counts it.",
    "allocatable": "What pods can request of the nodes.",
    "at risk": "Findings about the workload's containers, such as OOM kills and memory near its limit.",
    "pods resized": "The pods whose size the last node pass changes.",
    "cpu free": "What no pod would request of the node's allocatable CPU at the planned sizes.",
    "memory free": "What no pod would request of the node's allocatable memory at the planned sizes.",
    "7-day maximum": "The largest sample of the last seven days.",
    "request": "What the container requests now.",
    "limit": "The container's limit now.",
    "priority": "The pod's priority: of two pending pods, the higher one is placed first.",
    "runs": "Runs since the process started.",
    "failed": "Failed runs since the process started.",
    "duration": "The duration of the last run.",
    "stated": "The share of intervals in which demand may exceed the requests (cpu_risk, memory_risk).",
    "observed": "The share of intervals in which demand exceeded the requests, in the last seven days.",
    "intervals": "One for each node and node pass of the last seven days.",
    "level": "The level of headroom that keeps the observed risk at the stated one.",
    "current": "The metric with the current settings.",
    "proposed": "The metric with the proposed settings.",
    "change": "Proposed minus current; less is better.",
    "95 % interval": "The interval that is expected to hold the change over as much time again.",
}

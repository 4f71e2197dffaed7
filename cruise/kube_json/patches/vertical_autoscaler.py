"""A VerticalPodAutoscaler of cruise's own: the object, and its status; each is applied whole by the server."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from cruise.domain.annotations import PUBLISHED
from cruise.domain.quantity import format_cpu_millicores, format_memory_bytes
from cruise.domain.recommendations import Recommendation
from cruise.domain.resources import Resources

API_VERSION = "autoscaling.k8s.io/v1"
KIND = "VerticalPodAutoscaler"
OWNER = "cruise"

Json = dict[str, Any]


def vertical_object(wanted: Recommendation, update_mode: str) -> Json:
    """Return the object: its workload owns it, so that both go together."""
    kind, name = wanted.workload.kind, wanted.workload.name
    target = {"apiVersion": wanted.api_version, "kind": kind, "name": name}
    return {
        **_head(wanted, {"labels": {PUBLISHED: OWNER}, "ownerReferences": [{**target, "uid": wanted.uid}]}),
        "spec": {
            "targetRef": target,
            "updatePolicy": {"updateMode": update_mode},
            "recommenders": [{"name": OWNER}],
        },
    }


def vertical_status(wanted: Recommendation, since: datetime) -> Json:
    """Return the object with its status alone; `since` is when the conditions became what they are."""
    conditions = [_condition("RecommendationProvided", since)]
    if not wanted.is_confident:
        conditions.append(_condition("LowConfidence", since, "less than a day of use was seen"))
    recommended = [
        {
            "containerName": one.name,
            "lowerBound": _amounts(one.lower),
            "target": _amounts(one.target),
            "upperBound": _amounts(one.upper),
            "uncappedTarget": _amounts(one.uncapped),
        }
        for one in wanted.containers
    ]
    status = {"recommendation": {"containerRecommendations": recommended}, "conditions": conditions}
    return {**_head(wanted, {}), "status": status}


def _head(wanted: Recommendation, more: Mapping[str, object]) -> Json:
    metadata = {"namespace": wanted.namespace, "name": wanted.name, **more}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata}


def _condition(kind: str, since: datetime, message: str = "") -> Json:
    at = since.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": kind, "status": "True", "lastTransitionTime": at} | ({"message": message} if message else {})


def _amounts(amounts: Resources) -> dict[str, str]:
    return {"cpu": format_cpu_millicores(amounts.cpu_millicores), "memory": format_memory_bytes(amounts.memory_bytes)}

"""Random objects around workloads: namespaces, classes, budgets, autoscalers, limit ranges, quotas, claims."""

from collections.abc import Sequence

from benchmarks.compare_decisions.random_pods import ZONE, Json, PodDrawing, item

DRIVER = "disk.csi.example"
_TEAMS = ("red", "blue", "red")


def draw_namespaces(drawing: PodDrawing, namespaces: Sequence[str]) -> list[Json]:
    """Draw the namespaces with their limit ranges and quotas."""
    source, found = drawing.source, []
    for namespace, team in zip(namespaces, _TEAMS, strict=False):
        mode = source.choice([{}, {}, {"cruise.io/mode": "resize"}, {"cruise.io/mode": "?"}])
        annotations = mode if drawing.has("annotations", 0.4) else {}
        found.append(item("v1", "Namespace", namespace, {"labels": {"team": team}, "annotations": annotations}))
        if drawing.has("limit ranges", 0.6):
            bounds = source.choice(
                [
                    {"min": {"cpu": "200m"}},
                    {"max": {"cpu": "2", "memory": "1Gi"}},
                    {"maxLimitRequestRatio": {"memory": source.choice(["1.5", "3"])}},
                ]
            )
            limit = {"type": source.choice(["Container", "Pod"]), **bounds}
            found.append(item("v1", "LimitRange", "limits", {"namespace": namespace}, spec={"limits": [limit]}))
        if drawing.has("quotas", 0.6):
            status = {"hard": {"requests.cpu": "4"}, "used": {"requests.cpu": f"{source.randint(0, 4000)}m"}}
            found.append(item("v1", "ResourceQuota", "quota", {"namespace": namespace}, status=status))
    return found


def classes() -> list[Json]:
    """Return the priority classes and storage classes of random pods and claims."""
    return [
        item("scheduling.k8s.io/v1", "PriorityClass", "low", value=0, globalDefault=True),
        item("scheduling.k8s.io/v1", "PriorityClass", "high", value=100),
        item("scheduling.k8s.io/v1", "PriorityClass", "polite", value=100, preemptionPolicy="Never"),
        *(
            item("storage.k8s.io/v1", "StorageClass", name, provisioner=DRIVER, volumeBindingMode=mode)
            for name, mode in (("waits", "WaitForFirstConsumer"), ("at-once", "Immediate"))
        ),
    ]


def draw_guards(drawing: PodDrawing, namespace: str, kind: str, name: str) -> list[Json]:
    """Draw a workload's disruption budget and autoscaler, if any."""
    source, found, metadata = drawing.source, [], {"namespace": namespace}
    if drawing.has("budgets", 0.5):
        selector = source.choice([{"matchLabels": {"app": name}}] * 3 + [{}])
        status = {"disruptionsAllowed": source.randint(0, 2)}
        found.append(
            item("policy/v1", "PodDisruptionBudget", name, metadata, spec={"selector": selector}, status=status)
        )
    if drawing.has("autoscalers", 0.4) and kind in ("Deployment", "StatefulSet"):
        resource = {"name": source.choice(["cpu", "memory"]), "target": {"type": "Utilization"}}
        metrics = source.choice([{}, {"metrics": [{"type": "Resource", "resource": resource}]}])
        spec = {"scaleTargetRef": {"kind": kind, "name": name}, **metrics}
        found.append(item("autoscaling/v2", "HorizontalPodAutoscaler", name, metadata, spec=spec))
    return found


def draw_claim(drawing: PodDrawing, namespace: str, name: str) -> list[Json]:
    """Draw a claim: bound with its volume, pending, or missing."""
    source = drawing.source
    state = source.choice(["bound", "bound", "bound", "waits", "at-once", "missing"])
    if state == "missing":
        return []
    modes = [source.choice(["ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"])]
    spec: Json = {"accessModes": modes, "storageClassName": state}
    phase = {"phase": "Bound" if state == "bound" else "Pending"}
    found = [item("v1", "PersistentVolumeClaim", name, {"namespace": namespace}, spec=spec, status=phase)]
    if state == "bound":
        spec["volumeName"] = f"pv-{name}"
        volume: Json = {"csi": {"driver": DRIVER, "volumeHandle": name}}
        if source.random() < 0.5:
            zone = {"key": ZONE, "operator": "In", "values": [f"z{source.randint(1, 3)}"]}
            volume["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
        found.append(item("v1", "PersistentVolume", f"pv-{name}", spec=volume))
    return found

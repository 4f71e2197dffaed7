"""NodePools, their nodes and pending pods, as in Karpenter's API."""

from tests.builders import make_container_json, make_node_json, make_pod_json

TYPE, POOL, ZONE = "node.kubernetes.io/instance-type", "karpenter.sh/nodepool", "topology.kubernetes.io/zone"
GPU_ONLY = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]


def pool(name="default", requirements=(), limits=None, taints=(), node_class="default", status=None, **spec):
    template = {
        "metadata": {"labels": {"team": name}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": node_class},
            "requirements": list(requirements),
            "taints": list(taints),
            "startupTaints": [{"key": "booting", "effect": "NoExecute"}],
        },
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": template, "limits": limits or {}, **spec},
        "status": status or {},
    }


def only(key, *values, operator="In"):
    return {"key": key, "operator": operator, "values": list(values)}


def machine(name, kind="m5.large", cpu="2", of="default", zone="a", memory="8Gi", **labels):
    return make_node_json(name, cpu=cpu, memory=memory, labels={TYPE: kind, POOL: of, ZONE: zone, **labels})


def claim(name, kind="m5.xlarge", cpu="4", of="default", zone="a"):
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {TYPE: kind, POOL: of, ZONE: zone}},
        "spec": {"taints": [], "nodeClassRef": {"kind": "EC2NodeClass", "name": "default"}},
        "status": {"capacity": {"cpu": cpu, "memory": "16Gi"}, "allocatable": {"cpu": cpu, "memory": "15Gi"}},
    }


def waiting(count, cpu="1500m", **more):
    one = [make_container_json(cpu=cpu, memory="1Gi")]
    return [make_pod_json(f"web-{number}", node=None, containers=one, **more) for number in range(1, count + 1)]

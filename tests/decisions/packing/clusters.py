"""Tiny random clusters with every kind of constraint: at most five nodes and nine pods, for exhaustive search.

Each cluster has some of the features, so that rules meet each other and plans still exist. Most running pods are where
kube-scheduler would have put them, some are where labels, taints or rules changed after they had come.
"""

import random
from dataclasses import replace

from hypothesis import strategies as st

from cruise.decisions.scheduling.placements import PodPlacements
from cruise.decisions.scheduling.pod_affinity import SchedulerFilters
from cruise.domain.autoscalers import LimitRangeItem, ResourceQuota
from cruise.domain.cluster import (
    ClusterSnapshot,
    Container,
    ContainerRole,
    Node,
    Pod,
    PodDisruptionBudget,
    Workload,
    WorkloadRef,
)
from cruise.domain.pod_resources import count_pod_requests, get_qos_class
from cruise.domain.resources import MEBIBYTE, NO_RESOURCES, Resources, StatedResources
from cruise.domain.scheduling import (
    HostPort,
    LabelRequirement,
    LabelSelector,
    NodeSelectorTerm,
    PersistentVolumeClaim,
    PodAffinityTerm,
    PodConstraints,
    SchedulingConstraints,
    SelectorOperator,
    StorageAndNamespaces,
    Taint,
    TaintEffect,
    Toleration,
    TopologySpreadConstraint,
)
from tests.builders import LONG_AGO, make_container

HOST, ZONE, DISK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "disk"
GPU, DRIVER = "nvidia.com/gpu", "disk.csi.example"
FEATURES = (
    *("taints", "selectors", "cordons", "pod places", "gpus", "ports", "claims", "attach limits"),
    *("affinity", "anti-affinity", "spread", "budgets", "unmovable", "never preempts", "namespaces"),
    *("gates", "ending", "rankings", "quotas", "misplaced", "odd containers"),
)
NAMESPACE_LABELS = {"shop": {"team": "red"}, "bank": {"team": "blue"}}


def draw_cluster(source: random.Random) -> ClusterSnapshot:
    """A cluster with some of the features, at least one pending pod and at least one node."""
    return _Drawing(source).cluster()


def cluster_of(seed: int) -> ClusterSnapshot:
    """The cluster of a seed."""
    return draw_cluster(random.Random(seed))


clusters = st.randoms(use_true_random=False).map(draw_cluster)


class _Drawing:
    """One cluster while it is drawn."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        share = source.choice([0.1, 0.2, 0.35])
        self.features = {feature for feature in FEATURES if source.random() < share}
        self.zones = source.randint(1, 3)
        self.claims: dict[tuple[str, str], PersistentVolumeClaim] = {}

    def has(self, feature: str, chance: float = 1.0) -> bool:
        """Return whether a feature is drawn here."""
        return feature in self.features and self.source.random() < chance

    def cluster(self) -> ClusterSnapshot:
        count = self.source.choice([2, 2, 3, 3, 3, 4, 5])
        most = 9 if count < 4 else 7
        pods: list[Pod] = []
        workloads: dict[tuple[str, WorkloadRef], Workload] = {}
        for number in range(self.source.randint(2, 5)):
            template = self.template(f"app{number}")
            copies = min(self.source.randint(1, 4), most - len(pods))
            pods += [self.copy(template, copy) for copy in range(copies)]
            if template.workload is not None and copies:
                workloads[(template.namespace, template.workload)] = self.workload(template, copies)
        room = self.mean_room(pods, count)
        nodes = tuple(self.node(number, room) for number in range(1, count + 1))
        surroundings = StorageAndNamespaces(self.claims, self.attach_limits(nodes), NAMESPACE_LABELS)
        bare = ClusterSnapshot(nodes=nodes, storage_and_namespaces=surroundings)
        return replace(
            bare,
            pods=tuple(sorted(self.placed(bare, pods), key=lambda pod: (pod.namespace, pod.name))),
            workloads=workloads,
            budgets=self.budgets(),
            limit_ranges=self.limit_ranges(),
            quotas=self.quotas(),
            namespace_annotations=self.namespace_annotations(),
        )

    def mean_room(self, pods: list[Pod], nodes: int) -> Resources:
        """What a node has so that all together are nearly full, or a little more than that."""
        counted = [count_pod_requests(pod) for pod in pods]
        share = nodes * self.source.choice([0.7, 0.85, 0.95, 1.05])
        return Resources(
            int(sum(one.cpu_millicores for one in counted) / share),
            int(sum(one.memory_bytes for one in counted) / share),
        )

    def node(self, number: int, room: Resources) -> Node:
        source = self.source
        labels = {HOST: f"n{number}", ZONE: f"z{source.randint(1, self.zones)}", DISK: source.choice(["ssd", "hdd"])}
        if source.random() < 0.1:
            del labels[source.choice([HOST, ZONE, DISK])]
        taints: tuple[Taint, ...] = ()
        if self.has("taints", 0.4):
            taints = (Taint("dedicated", source.choice(["red", "blue"]), source.choice(list(TaintEffect))),)
        return Node(
            name=f"n{number}",
            allocatable=Resources(
                int(room.cpu_millicores * source.uniform(0.8, 1.3)) // 100 * 100,
                int(room.memory_bytes * source.uniform(0.9, 1.5)) // MEBIBYTE * MEBIBYTE,
            ),
            allocatable_pods=source.randint(1, 3) if self.has("pod places", 0.5) else 110,
            allocatable_extended={GPU: source.randint(0, 3)} if self.has("gpus", 0.8) else {},
            labels=labels,
            taints=taints,
            unschedulable=self.has("cordons", 0.25),
            ready=not self.has("cordons", 0.2),
            kubelet_version=(1, 34),
        )

    def template(self, app: str) -> Pod:
        source = self.source
        namespace = source.choice(["shop", "bank"]) if "namespaces" in self.features else "shop"
        kind = source.choice(["Deployment"] * 4 + ["StatefulSet", "Job"])
        if self.has("unmovable", 0.3):
            kind = source.choice(["DaemonSet", "Bare"])
        ref = None if kind == "Bare" else WorkloadRef(kind, app)
        containers = self.containers()
        pod = Pod(
            namespace=namespace,
            name=app,
            uid="",
            containers=containers,
            workload=ref,
            owner_kind={"Deployment": "ReplicaSet", "Bare": None}.get(kind, kind),
            owner_name=None if ref is None else f"{app}-rs" if kind == "Deployment" else app,
            labels={"app": app, "tier": source.choice(["web", "db"])},
            annotations=self.annotations(),
            phase="Pending",
            created_at=LONG_AGO,
            priority=source.choice([0, 0, 10, 100]),
            overhead=Resources(50, 10 * MEBIBYTE) if self.has("odd containers", 0.3) else NO_RESOURCES,
            extended_requests=((GPU, source.randint(1, 2)),) if self.has("gpus", 0.4) else (),
            placement=self.placement(),
            constraints=PodConstraints(
                affinity=self.terms("affinity", namespace, app),
                anti_affinity=self.terms("anti-affinity", namespace, app),
                spread=self.spread(app),
                host_ports=self.ports(),
            ),
            may_preempt=not self.has("never preempts", 0.4),
        )
        return replace(pod, qos=get_qos_class(pod))

    def containers(self) -> tuple[Container, ...]:
        source = self.source
        cpu, memory = source.randint(1, 6) * 100, source.randint(1, 6) * 100
        main = make_container("app", cpu, memory, settled=False)
        if not self.has("odd containers", 0.5):
            return (main,)
        shapes = [
            (make_container("app", cpu, memory, cpu, memory, settled=False),),
            (make_container("app", None, memory, settled=False),),
            (make_container("app", cpu, None, settled=False),),
            (make_container("app", None, None, settled=False),),
            (make_container("init", cpu + 100, 50, role=ContainerRole.INIT), main),
            (make_container("proxy", 50, 50, role=ContainerRole.SIDECAR, settled=False), main),
        ]
        return source.choice(shapes)

    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.has("rankings", 0.5):
            found["cruise.io/eviction-ranking"] = self.source.choice(["low", "medium", "high", "never"])
        if self.has("unmovable", 0.3):
            choices = [
                ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
                ("karpenter.sh/do-not-disrupt", "true"),
                ("cruise.io/mode", "observe"),
                ("cruise.io/mode", "sideways"),
                ("cruisekube.truefoundry.com/excluded", "true"),
            ]
            key, value = self.source.choice(choices)
            found[key] = value
        return found

    def placement(self) -> SchedulingConstraints:
        source = self.source
        selector: tuple[tuple[str, str], ...] = ()
        terms: tuple[NodeSelectorTerm, ...] | None = None
        tolerations: tuple[Toleration, ...] = ()
        if self.has("selectors", 0.3):
            selector = ((DISK, source.choice(["ssd", "hdd"])),)
        if self.has("selectors", 0.3):
            zone = LabelRequirement(ZONE, source.choice([SelectorOperator.IN, SelectorOperator.NOT_IN]), ("z1",))
            name = LabelRequirement(
                "metadata.name", source.choice([SelectorOperator.IN, SelectorOperator.NOT_IN]), ("n1",)
            )
            disk = LabelRequirement(DISK, source.choice([SelectorOperator.EXISTS, SelectorOperator.DOES_NOT_EXIST]))
            choices = [
                (NodeSelectorTerm((zone,)),),
                (NodeSelectorTerm((), (name,)),),
                (NodeSelectorTerm((zone, disk)), NodeSelectorTerm((), (name,))),
                (NodeSelectorTerm((disk,)),),
            ]
            terms = source.choice(choices)
        if self.has("taints", 0.5):
            tolerated = [
                Toleration("dedicated", value="red"),
                Toleration("dedicated", exists=True),
                Toleration("dedicated", exists=True, effect=TaintEffect.NO_SCHEDULE),
                Toleration(exists=True),
            ]
            tolerations = (source.choice(tolerated),)
        return SchedulingConstraints(selector, terms, tolerations)

    def selector(self, app: str = "app0") -> LabelSelector | None:
        """Selects an app's own pods more often than others."""
        source = self.source
        if source.random() < 0.5:
            return LabelSelector((LabelRequirement("app", SelectorOperator.IN, (app,)),))
        if source.random() < 0.6:
            return LabelSelector((LabelRequirement("app", SelectorOperator.IN, (f"app{source.randint(0, 3)}",)),))
        choices = [
            LabelSelector((LabelRequirement("tier", SelectorOperator.IN, ("web",)),)),
            LabelSelector((LabelRequirement("tier", SelectorOperator.NOT_IN, ("web",)),)),
            LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("app0", "app1")),)),
            LabelSelector(),
            None,
        ]
        return source.choice(choices)

    def terms(self, feature: str, namespace: str, app: str) -> tuple[PodAffinityTerm, ...]:
        many = 1 if self.source.random() < 0.7 else 2
        return tuple(self.term(namespace, app) for _ in range(many)) if self.has(feature, 0.4) else ()

    def term(self, namespace: str, app: str) -> PodAffinityTerm:
        source = self.source
        key = source.choice([HOST, ZONE, ZONE, DISK])
        if "namespaces" not in self.features or source.random() < 0.5:
            return PodAffinityTerm(key, self.selector(app), frozenset({namespace}))
        team = LabelSelector((LabelRequirement("team", SelectorOperator.IN, (source.choice(["red", "blue"]),)),))
        choices = [
            PodAffinityTerm(key, self.selector(app), frozenset({"shop", "bank"})),
            PodAffinityTerm(key, self.selector(app), frozenset({"bank"})),
            PodAffinityTerm(key, self.selector(app), frozenset(), team),
            PodAffinityTerm(key, self.selector(app), frozenset({"shop"}), LabelSelector()),
        ]
        return source.choice(choices)

    def spread(self, app: str) -> tuple[TopologySpreadConstraint, ...]:
        source = self.source
        if not self.has("spread", 0.5):
            return ()
        return tuple(
            TopologySpreadConstraint(
                topology_key=key,
                selector=self.selector(app),
                max_skew=source.choice([1, 1, 2]),
                min_domains=source.choice([1, 1, 1, 2, 3]),
                honours_node_affinity=source.random() < 0.7,
                honours_node_taints=source.random() < 0.3,
            )
            for key in source.choice([(HOST,), (ZONE,), (ZONE,), (HOST, ZONE), (DISK,)])
        )

    def ports(self) -> tuple[HostPort, ...]:
        if not self.has("ports", 0.4):
            return ()
        return (HostPort(self.source.choice(["TCP", "UDP"]), 80, self.source.choice(["", "10.0.0.1", "10.0.0.2"])),)

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim:
        source = self.source
        state = source.choice(["bound"] * 5 + ["waits", "waits", "unbound"])
        zone = NodeSelectorTerm((LabelRequirement(ZONE, SelectorOperator.IN, (f"z{source.randint(1, self.zones)}",)),))
        return PersistentVolumeClaim(
            namespace=namespace,
            name=name,
            bound=state == "bound",
            waits_for_first_consumer=state == "waits",
            terms=(zone,) if source.random() < 0.5 else None,
            driver=DRIVER if source.random() < 0.7 else None,
            volume=f"volume-{namespace}-{name}" if state == "bound" else "",
            single_pod=source.random() < 0.3,
        )

    def attach_limits(self, nodes: tuple[Node, ...]) -> dict[str, dict[str, int]]:
        return {node.name: {DRIVER: self.source.randint(0, 2)} for node in nodes if self.has("attach limits", 0.7)}

    def workload(self, template: Pod, copies: int) -> Workload:
        assert template.workload is not None
        replicas = self.source.choice([copies, copies, copies, None, 1, 3])
        return Workload(template.namespace, template.workload, replicas, {}, LONG_AGO)

    def copy(self, template: Pod, number: int) -> Pod:
        name = f"{template.name}-{number}"
        pod = replace(template, name=name, uid=f"uid-{template.namespace}-{name}")
        if self.has("claims", 0.4):
            # A claim is one pod's own, or shared by all pods of a workload where no attach limit counts it twice.
            shared = "attach limits" not in self.features and self.source.random() < 0.4
            claim = f"{template.name}-all" if shared else f"data-{name}"
            if self.source.random() < 0.95:
                self.claims.setdefault((pod.namespace, claim), self.claim(pod.namespace, claim))
            pod = replace(pod, constraints=replace(pod.constraints, claims=(claim,)))
        return pod

    def placed(self, bare: ClusterSnapshot, pods: list[Pod]) -> list[Pod]:
        """The pods in a random order, each run where it may, or left pending."""
        source = self.source
        board = PodPlacements(bare)
        scheduler = SchedulerFilters(board)
        pending = source.choice([0.0, 0.1, 0.3])
        order = list(pods)
        source.shuffle(order)
        if source.random() < 0.5:
            # What matters less came first, so that what matters more finds no room.
            order.sort(key=lambda pod: pod.priority)
        done: list[Pod] = []
        for number, pod in enumerate(order):
            last = number == len(order) - 1 and all(other.node is not None for other in done)
            if last or source.random() < pending:
                done.append(replace(pod, scheduling_gated=self.has("gates", 0.3), terminating=self.has("ending", 0.1)))
                continue
            open_nodes = [node for node in bare.nodes if not any(scheduler.check(pod, node))]
            if self.has("misplaced", 0.3):
                open_nodes = list(bare.nodes)
            if not open_nodes:
                done.append(pod)
                continue
            here = self.running(pod, source.choice(open_nodes).name)
            if not here.is_finished:
                board.add(here, here.node or "")
            done.append(here)
        return done

    def running(self, pod: Pod, node: str) -> Pod:
        source = self.source
        settled = tuple(_settled(container) for container in pod.containers)
        phase, name = "Running", node
        if self.has("ending", 0.1):
            phase = source.choice(["Succeeded", "Failed"])
        if self.has("ending", 0.05):
            name = "vanished"
        pod = replace(pod, node=name, phase=phase, containers=settled, terminating=self.has("ending", 0.3))
        if self.has("unmovable", 0.1):
            pod = replace(pod, is_mirror_pod=True)
        return pod

    def budgets(self) -> tuple[PodDisruptionBudget, ...]:
        if "budgets" not in self.features:
            return ()
        return tuple(
            PodDisruptionBudget(
                namespace, f"budget{number}", self.selector() or LabelSelector(), self.source.randint(0, 2)
            )
            for number in range(self.source.randint(1, 3))
            for namespace in self.source.sample(["shop", "bank"], self.source.randint(1, 2))
        )

    def limit_ranges(self) -> dict[str, tuple[LimitRangeItem, ...]]:
        if not self.has("quotas", 0.5):
            return {}
        return {"shop": (LimitRangeItem(is_for_pod=self.source.random() < 0.5, minimum=StatedResources(200, None)),)}

    def quotas(self) -> dict[str, tuple[ResourceQuota, ...]]:
        if not self.has("quotas", 0.5):
            return {}
        left = self.source.randint(0, 6) * 100
        return {"shop": (ResourceQuota(requests_left=StatedResources(left, None)),)}

    def namespace_annotations(self) -> dict[str, dict[str, str]]:
        return {"bank": {"cruise.io/mode": "resize"}} if self.has("unmovable", 0.2) else {}


def _settled(container: Container) -> Container:
    if container.role is ContainerRole.INIT:
        return container
    return replace(container, allocated=container.requests, actual=container.requests, actual_limits=container.limits)

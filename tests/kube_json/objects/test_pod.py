"""Pods from wire JSON, given as a dict and as bytes."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.cluster import ContainerRole, Pod, QosClass, WorkloadRef
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.resources import MEBIBYTE, ResizePending, ResizeState, ResourceName, Resources, StatedResources
from cruise.domain.scheduling import LabelRequirement, NodeSelectorTerm, SelectorOperator, TaintEffect, Toleration
from cruise.errors import BadInputError
from cruise.kube_json.objects.pod import PodDecoder, decode_pod
from cruise.kube_json.wire.pod_json import PodObject
from tests.builders import LONG_AGO, NOW, Json, make_amounts, make_container_json, make_pod_json, stamp

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}


def resources_json(**requests: str) -> Json:
    return {"requests": requests}


def status_json(name: str = "app", **more: object) -> Json:
    return {"name": name, "restartCount": 0, "ready": True, "image": "i", "imageID": "", **more}


def decode_bytes(document: Json) -> Pod:
    return PodDecoder().read(msgspec.json.decode(json.dumps(document), type=PodObject))


def test_a_plain_pod_of_a_deployment():
    pod = decode_pod(make_pod_json())
    assert (pod.namespace, pod.name, pod.node, pod.phase) == ("shop", "web-7d9f8b6c5d-x2x4z", "n1", "Running")
    assert pod.workload == WorkloadRef("Deployment", "web")
    assert (pod.owner_kind, pod.owner_name) == ("ReplicaSet", "web-7d9f8b6c5d")
    assert pod.labels == {"app": "web", "pod-template-hash": "7d9f8b6c5d"}
    assert pod.created_at == LONG_AGO
    assert pod.qos is QosClass.BURSTABLE
    (container,) = pod.containers
    assert container.requests == make_amounts(100, 128)
    assert container.limits == StatedResources()
    assert (container.allocated, container.actual, container.actual_limits) == (None, None, None)


def test_bytes_and_dicts_give_the_same_pod():
    document = make_pod_json(
        init_containers=[make_container_json("init"), make_container_json("proxy", restartPolicy="Always")],
        container_statuses=[status_json(allocatedResources={"cpu": "100m"}, resources=resources_json(cpu="100m"))],
        annotations={"cruise.io/mode": "off", "other": "x"},
    )
    assert decode_bytes(document) == decode_pod(document)


def test_a_pod_in_creation_has_neither_name_nor_status():
    document = make_pod_json(node=None)
    del document["metadata"]["name"], document["status"], document["metadata"]["creationTimestamp"]
    pod = decode_pod(document)
    assert (pod.name, pod.phase, pod.node, pod.created_at) == ("", "Pending", None, None)


def test_null_fields_are_absent_fields():
    nulls = {"tolerations": None, "affinity": None, "overhead": None, "priority": None, "nodeSelector": None}
    document = make_pod_json(spec={**nulls, "initContainers": None}, metadata={"annotations": None, "labels": None})
    document["spec"]["containers"][0]["resources"] = None
    assert decode_pod(document).containers[0].requests == StatedResources()


# ---- containers ----


def test_init_containers_and_sidecars_are_first_in_spec_order():
    pod = decode_pod(
        make_pod_json(
            containers=[make_container_json("app"), make_container_json("log")],
            init_containers=[
                make_container_json("migrate", restartPolicy=None),
                make_container_json("proxy", restartPolicy="Always"),
                make_container_json("warm"),
            ],
        )
    )
    assert [(container.name, container.role) for container in pod.containers] == [
        ("migrate", ContainerRole.INIT),
        ("proxy", ContainerRole.SIDECAR),
        ("warm", ContainerRole.INIT),
        ("app", ContainerRole.MAIN),
        ("log", ContainerRole.MAIN),
    ]


def test_what_the_kubelet_reports_is_joined_by_name():
    reported = {"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
    pod = decode_pod(
        make_pod_json(
            containers=[make_container_json("app"), make_container_json("log")],
            init_containers=[make_container_json("proxy", restartPolicy="Always"), make_container_json("init")],
            # In another order than the spec, as the kubelet sorts by name.
            container_statuses=[
                status_json("log"),
                status_json("app", allocatedResources={"cpu": "300m"}, resources=reported, restartCount=3),
            ],
            init_container_statuses=[
                status_json("init", allocatedResources={"cpu": "5"}),
                status_json("proxy", allocatedResources={"cpu": "50m", "memory": "32Mi"}, resources={}),
            ],
        )
    )
    proxy, init, app, log = pod.containers
    assert app.allocated == StatedResources(300, None)
    assert app.actual == make_amounts(200, 64)
    assert app.actual_limits == make_amounts(None, 128)
    assert app.restart_count == 3
    assert app.running
    assert (log.allocated, log.actual, log.actual_limits) == (None, None, None)
    assert proxy.allocated == make_amounts(50, 32)
    assert (proxy.actual, proxy.actual_limits) == (StatedResources(), StatedResources())
    assert init.allocated is None


def test_requests_that_are_absent_are_the_limits():
    pod = decode_pod(
        make_pod_json(containers=[make_container_json(cpu=None, memory="64Mi", cpu_limit="2", memory_limit="128Mi")])
    )
    assert pod.containers[0].requests == make_amounts(2000, 64)
    stated_zero = decode_pod(make_pod_json(containers=[make_container_json(cpu="0", cpu_limit="2")]))
    assert stated_zero.containers[0].requests.cpu_millicores == 0


def test_resize_policy_shows_which_resource_restarts():
    policy = [
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
    ]
    (container,) = decode_pod(make_pod_json(containers=[make_container_json(resizePolicy=policy)])).containers
    assert (container.cpu_resize_restarts, container.memory_resize_restarts) == (False, True)


def test_equal_containers_labels_and_placements_are_shared_between_pods():
    reader = PodDecoder()
    first, second = (
        reader.read(msgspec.convert(make_pod_json(f"web-{index}", spec={"nodeSelector": {"a": "b"}}), PodObject))
        for index in range(2)
    )
    assert first.containers[0] is second.containers[0]
    assert first.labels is second.labels
    assert first.placement is second.placement
    assert first.workload is second.workload


@pytest.mark.parametrize(
    ("resources", "status"),
    [
        ({"requests": {"cpu": "101m"}}, {}),
        ({"requests": {"cpu": "100m"}, "limits": {"cpu": "100m"}}, {}),
        ({"requests": {"cpu": "100m"}}, {"restartCount": 1}),
        ({"requests": {"cpu": "100m"}}, {"allocatedResources": {"cpu": "100m"}}),
        ({"requests": {"cpu": "100m"}}, {"resources": {}}),
        ({"requests": {"cpu": "100m"}}, {"resources": {"requests": {"cpu": "100m"}}}),
        ({"requests": {"cpu": "100m"}}, {"resources": {"limits": {"cpu": "100m"}}}),
        ({"requests": {"memory": "100m"}}, {}),
    ],
)
def test_sharing_never_joins_what_differs(resources, status):
    reader = PodDecoder()

    def read(resources: Json, status: Json) -> Pod:
        document = make_pod_json(
            containers=[{"name": "app", "resources": resources}], container_statuses=[status_json(**status)]
        )
        return reader.read(msgspec.convert(document, PodObject))

    plain = read({"requests": {"cpu": "100m"}}, {})
    other = read(resources, status)
    assert other.containers != plain.containers
    assert other == decode_pod(
        make_pod_json(containers=[{"name": "app", "resources": resources}], container_statuses=[status_json(**status)])
    )


@pytest.mark.parametrize(
    ("metadata", "spec"),
    [
        ({"namespace": "other"}, {}),
        ({"labels": {"app": "other"}}, {}),
        ({"ownerReferences": [{"kind": "StatefulSet", "name": "db", "controller": True}]}, {}),
        ({}, {"initContainers": [make_container_json("first")]}),
        ({}, {"overhead": {"cpu": "10m", "example.com/tap": "1"}}),
        ({}, {"resources": {"requests": {"cpu": "2"}}}),
        ({}, {"os": {"name": "windows"}}),
        ({}, {"nodeSelector": {"a": "b"}}),
        ({}, {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "kubernetes.io/hostname"}]}}}),
        ({}, {"tolerations": [{"operator": "Exists"}]}),
        ({}, {"topologySpreadConstraints": [SPREAD]}),
        ({}, {"hostNetwork": True}),
        ({}, {"preemptionPolicy": "Never"}),
        ({}, {"priorityClassName": "high"}),
        ({}, {"schedulerName": "other"}),
        ({}, {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}),
        ({}, {"priority": 7}),
    ],
)
def test_a_pod_decodes_the_same_after_a_similar_pod(metadata, spec):
    plain = make_pod_json(containers=[make_container_json(ports=[{"containerPort": 80}])])
    other = {**plain, "metadata": plain["metadata"] | metadata, "spec": plain["spec"] | spec}
    reader = PodDecoder()
    pods = [reader.read(msgspec.convert(document, PodObject)) for document in (plain, other, plain)]
    assert pods == [decode_pod(document) for document in (plain, other, plain)]
    assert pods[0] != pods[1]


def test_sums_of_a_pod_fit_64_bits_whatever_it_states():
    huge = {"cpu": "9E", "memory": "9E", "example.com/gpu": "9E"}
    containers = [{"name": f"c{number}", "resources": {"requests": huge, "limits": huge}} for number in range(3000)]
    statuses = [
        {"name": one["name"], "allocatedResources": huge, "resources": {"requests": huge}} for one in containers
    ]
    pod = decode_pod(make_pod_json("web-1", containers=containers, container_statuses=statuses))
    counted = count_pod_requests(pod)
    largest = max(counted.cpu_millicores, counted.memory_bytes, *dict(pod.extended_requests).values())
    assert 1 << 52 < largest <= 1 << 53


def test_extended_requests_are_summed_as_the_scheduler_does():
    gpu = "nvidia.com/gpu"
    pod = decode_pod(
        make_pod_json(
            containers=[
                {"name": "a", "resources": {"limits": {gpu: "1", "hugepages-2Mi": "4Mi", "ephemeral-storage": "1Gi"}}},
                {"name": "b", "resources": {"requests": {gpu: 2}, "limits": {gpu: 2}}},
            ],
            init_containers=[
                {"name": "s", "restartPolicy": "Always", "resources": {"limits": {"example.com/tap": "1"}}},
                {"name": "i", "resources": {"limits": {gpu: "5", "example.com/tap": "1"}}},
            ],
        )
    )
    # GPU: max(init 5, 1 + 2); taps: the sidecar's 1 still runs next to the init container's 1.
    assert pod.extended_requests == (
        ("ephemeral-storage", 1 << 30),
        ("example.com/tap", 2),
        ("hugepages-2Mi", 4 << 20),
        (gpu, 5),
    )


# ---- QoS ----

GUARANTEED = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1024Mi"}}


@pytest.mark.parametrize(
    ("containers", "init_containers", "qos"),
    [
        ([GUARANTEED], [], QosClass.GUARANTEED),
        ([{"limits": GUARANTEED["limits"]}], [], QosClass.GUARANTEED),
        ([GUARANTEED, {}], [], QosClass.BURSTABLE),
        ([GUARANTEED], [{}], QosClass.BURSTABLE),
        ([GUARANTEED], [GUARANTEED], QosClass.GUARANTEED),
        ([{"limits": {"memory": "1Gi"}}], [], QosClass.BURSTABLE),
        ([{}], [], QosClass.BEST_EFFORT),
        ([{"requests": {"cpu": "0"}, "limits": {"memory": "0"}}], [], QosClass.BEST_EFFORT),
        ([{}], [{"requests": {"cpu": "1m"}}], QosClass.BURSTABLE),
        ([{"requests": {"ephemeral-storage": "1Gi"}}], [], QosClass.BEST_EFFORT),
    ],
)
def test_qos_is_computed_where_the_status_does_not_say(containers, init_containers, qos):
    named = [{"name": f"c{index}", "resources": resources} for index, resources in enumerate(containers)]
    inits = [{"name": f"i{index}", "resources": resources} for index, resources in enumerate(init_containers)]
    assert decode_pod(make_pod_json(containers=named, init_containers=inits)).qos is qos


def test_the_qos_class_in_the_status_is_used():
    assert decode_pod(make_pod_json(qos="Guaranteed")).qos is QosClass.GUARANTEED


def test_pod_level_resources_are_read_with_the_servers_defaults():
    pod = decode_pod(make_pod_json(spec={"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}))
    # The container states requests for both, so their sum is the pod's.
    assert pod.pod_level is not None
    assert (pod.pod_level.requests, pod.pod_level.limits) == (make_amounts(100, 128), make_amounts(2000, 1024))
    assert pod.qos is QosClass.BURSTABLE
    bare = decode_pod(
        make_pod_json(containers=[{"name": "app"}], spec={"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}})
    )
    assert bare.pod_level is not None
    assert bare.pod_level.requests == make_amounts(2000, 1024)
    assert bare.qos is QosClass.GUARANTEED
    assert decode_pod(make_pod_json(spec={"resources": {}})).pod_level is None


# ---- conditions ----


LATE = "9999-12-31T23:59:59+00:00"


def condition(kind: str, status: str = "True", reason: str | None = None) -> Json:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": stamp(NOW)}


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], ResizeState()),
        ([condition("PodResizePending", reason="Deferred")], ResizeState(ResizePending.DEFERRED, NOW)),
        ([condition("PodResizePending", reason="Infeasible")], ResizeState(ResizePending.INFEASIBLE, NOW)),
        *(
            (
                [
                    condition("PodResizePending", reason="Infeasible")
                    | {"message": f"Resize is infeasible for {message}"}
                ],
                ResizeState(ResizePending.INFEASIBLE, NOW, static_manager=manager),
            )
            for message, manager in (
                # Kubernetes 1.33, then 1.34 to 1.36.
                ("Guaranteed Pods alongside CPU Manager static policy", ResourceName.CPU),
                ("Guaranteed Pods alongside Memory Manager static policy", ResourceName.MEMORY),
                ('Guaranteed Pods alongside CPU Manager policy "static"', ResourceName.CPU),
                ('Guaranteed Pods alongside Memory Manager policy "Static"', ResourceName.MEMORY),
                ("static pods", None),
            )
        ),
        (
            [
                condition("PodResizePending", reason="Infeasible")
                | {"message": "In-place resize of containers with swap is not supported."}
            ],
            ResizeState(ResizePending.INFEASIBLE, NOW, memory_swaps=True),
        ),
        *(
            # A kubelet may have reasons of its own: the resize is pending all the same.
            ([condition("PodResizePending", reason=reason)], ResizeState(ResizePending.DEFERRED, NOW))
            for reason in ("WaitingForDevice", "", None)
        ),
        ([condition("PodResizePending", "False", "Deferred")], ResizeState()),
        ([condition("PodResizeInProgress")], ResizeState(in_progress=True)),
        ([condition("PodResizeInProgress", reason="Error")], ResizeState(in_progress=True, error=True)),
        (
            [condition("PodResizeInProgress"), condition("PodResizePending", reason="Deferred")],
            ResizeState(ResizePending.DEFERRED, NOW, in_progress=True),
        ),
    ],
)
def test_resize_conditions(conditions, state):
    assert decode_pod(make_pod_json(conditions=conditions)).resize == state


def test_unschedulable_since_the_condition_changed():
    unschedulable = condition("PodScheduled", "False", "Unschedulable")
    assert decode_pod(make_pod_json(node=None, conditions=[unschedulable])).unschedulable_since == NOW
    without_time = {key: value for key, value in unschedulable.items() if key != "lastTransitionTime"}
    assert decode_pod(make_pod_json(node=None, conditions=[without_time])).unschedulable_since == LONG_AGO
    gated = condition("PodScheduled", "False", "SchedulingGated")
    assert decode_pod(make_pod_json(node=None, conditions=[gated])).unschedulable_since is None


@pytest.mark.parametrize(
    ("phase", "conditions", "ready"),
    [
        ("Running", [condition("Ready")], True),
        ("Running", [condition("Ready", "False", "ContainersNotReady")], False),
        ("Running", [condition("Ready", "Unknown")], False),
        ("Running", [], True),
        ("Pending", [], False),
        ("Succeeded", [condition("Ready", "False", "PodCompleted")], False),
    ],
)
def test_ready_is_what_the_condition_says(phase, conditions, ready):
    assert decode_pod(make_pod_json(phase=phase, conditions=conditions)).ready is ready


def test_marks_of_a_pods_life():
    pod = decode_pod(make_pod_json(metadata={"deletionTimestamp": stamp(NOW)}, phase="Failed"))
    assert pod.terminating
    assert pod.is_finished
    assert decode_pod(make_pod_json(spec={"schedulingGates": [{"name": "g"}]})).scheduling_gated
    assert decode_pod(make_pod_json(spec={"priority": -5})).priority == -5


def affine(*systems: str) -> Json:
    """Required node affinity to any of these operating systems, one term each; an empty name is another label."""
    labels = [("kubernetes.io/os", one) if one else ("pool", "a") for one in systems]
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]} for key, value in labels]
    required = {"nodeSelectorTerms": terms}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


@pytest.mark.parametrize(
    ("spec", "is_windows"),
    [
        ({"os": {"name": "windows"}}, True),
        ({"nodeSelector": {"kubernetes.io/os": "windows"}}, True),
        (affine("windows"), True),
        (affine("windows", "windows"), True),
        (affine("windows", "linux"), False),
        (affine("windows", ""), False),
        (affine("linux"), False),
        ({"os": {"name": "linux"}}, False),
        ({}, False),
    ],
)
def test_windows_pods_are_known_by_their_spec(spec, is_windows):
    assert decode_pod(make_pod_json(spec=spec)).runs_on_windows is is_windows


def test_overhead_is_read():
    assert decode_pod(make_pod_json(spec={"overhead": {"cpu": "250m", "memory": "120Mi"}})).overhead == Resources(
        250, 120 * MEBIBYTE
    )


# ---- owners and annotations ----


def test_mirror_pods_are_marked_and_have_no_workload():
    by_owner = decode_pod(make_pod_json("etcd-n1", "kube-system", owner="Node/n1"))
    assert (by_owner.is_mirror_pod, by_owner.workload, by_owner.owner_kind) == (True, None, "Node")
    by_annotation = decode_pod(make_pod_json(owner=None, annotations={"kubernetes.io/config.mirror": "x"}))
    assert (by_annotation.is_mirror_pod, by_annotation.workload) == (True, None)


def test_a_bare_pod_has_no_workload():
    pod = decode_pod(make_pod_json("debug", owner=None))
    assert (pod.workload, pod.owner_kind, pod.is_mirror_pod) == (None, None, False)


def test_a_daemon_set_pod_is_reported_by_its_node_even_before_it_is_bound():
    assert decode_pod(make_pod_json("agent-x", owner="DaemonSet/agent", node="n7")).identity == "n7"
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    pending = make_pod_json(
        "agent-y", owner="DaemonSet/agent", node=None, spec={"affinity": {"nodeAffinity": required}}
    )
    assert decode_pod(pending).identity == "n9"


def test_only_annotations_that_decisions_read_are_kept():
    kept = {
        "cruise.io/mode": "off",
        "cruise.io/cpu-min.app": "1",
        "cruisekube.truefoundry.com/excluded": "true",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
        "karpenter.sh/do-not-evict": "true",
    }
    dropped = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "cruise.iox/mode": "off"}
    assert decode_pod(make_pod_json(annotations=kept | dropped)).annotations == kept


# ---- placement ----


def test_placement_has_selector_required_affinity_and_tolerations():
    required = {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n3"]}]},
        ]
    }
    preferred = [{"weight": 1, "preference": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}]
    pod = decode_pod(
        make_pod_json(
            spec={
                "nodeSelector": {"disk": "ssd", "arch": "amd64"},
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": required,
                        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
                    },
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "h"}]},
                },
                "tolerations": [
                    {"operator": "Exists"},
                    {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
                    {"key": "old", "value": "1", "tolerationSeconds": 300},
                    {"key": "load", "operator": "Lt", "value": "5"},
                ],
            }
        )
    )
    assert pod.placement.node_selector == (("arch", "amd64"), ("disk", "ssd"))
    assert pod.placement.terms == (
        NodeSelectorTerm(expressions=(LabelRequirement("zone", SelectorOperator.IN, ("a", "b")),)),
        NodeSelectorTerm(fields=(LabelRequirement("metadata.name", SelectorOperator.NOT_IN, ("n3",)),)),
    )
    # A numeric toleration cannot be judged, so it tolerates nothing.
    assert pod.placement.tolerations == (
        Toleration(exists=True),
        Toleration("gpu", value="yes", effect=TaintEffect.NO_SCHEDULE),
        Toleration("old", value="1"),
    )


# ---- refusals ----


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            make_pod_json("web-1", containers=[make_container_json(), make_container_json("b", cpu="1.5Gx")]),
            'Pod shop/web-1: spec.containers[1].resources.requests.cpu: "1.5Gx" is not a quantity; '
            "write e.g. 500m, 2 or 1.5Gi",
        ),
        (
            make_pod_json("web-1", init_containers=[make_container_json("i", memory="-1Mi")]),
            'Pod shop/web-1: spec.initContainers[0].resources.requests.memory: "-1Mi" is negative; '
            "write an amount of 0 or more",
        ),
        (
            make_pod_json("web-1", container_statuses=[status_json(allocatedResources={"cpu": "x"})]),
            'Pod shop/web-1: status of container app: allocatedResources.cpu: "x" is not a quantity; '
            "write e.g. 500m, 2 or 1.5Gi",
        ),
        (
            make_pod_json("web-1", spec={"overhead": {"cpu": "x"}}),
            'Pod shop/web-1: spec.overhead.cpu: "x" is not a quantity; write e.g. 500m, 2 or 1.5Gi',
        ),
        (
            make_pod_json("web-1", init_containers=[make_container_json("app")]),
            'Pod shop/web-1: spec: two containers have the name "app"; rename one',
        ),
        (
            make_pod_json("web-1", containers=[make_container_json("")]),
            "Pod shop/web-1: spec.containers[0]: has no name; add one",
        ),
        (
            make_pod_json("web-1", containers=[{"name": "a", "resources": {"limits": {"example.com/x": "1.5Gx"}}}]),
            'Pod shop/web-1: spec.containers[0].resources.limits.example.com/x: "1.5Gx" is not a quantity; '
            "write e.g. 500m, 2 or 1.5Gi",
        ),
        (
            make_pod_json("web-1", containers=[{"name": "a", "resources": {"limits": {"cpu": ["1"]}}}]),
            "Pod shop/web-1: spec.containers[0].resources.limits[...]: is a list instead of a quantity; "
            "write a quantity",
        ),
        (
            make_pod_json("web-1", spec={"containers": {}}),
            "Pod shop/web-1: spec.containers: is an object instead of a list; write a list",
        ),
        (
            make_pod_json("web-1", metadata={"creationTimestamp": "yesterday"}),
            "Pod shop/web-1: metadata.creationTimestamp: is not a time; write e.g. 2026-01-01T00:00:00Z",
        ),
        (
            make_pod_json("web-1", metadata={"creationTimestamp": "9999-12-31T23:59:59-23:59"}),
            "Pod shop/web-1: metadata.creationTimestamp: 9999-12-31T23:59:59-23:59 is not a time; "
            "write e.g. 2026-01-01T00:00:00Z",
        ),
        (
            make_pod_json("web-1", conditions=[condition("PodResizePending") | {"lastTransitionTime": LATE}]),
            f"Pod shop/web-1: status.conditions[PodResizePending].lastTransitionTime: {LATE} is not a time; "
            "write e.g. 2026-01-01T00:00:00Z",
        ),
        (make_pod_json("web-1") | {"spec": {}}, "Pod shop/web-1: spec: has no containers; add it"),
        (
            make_pod_json("web-1", spec={"tolerations": [{"effect": "Never"}]}),
            'Pod shop/web-1: spec.tolerations: "Never" is not an effect; '
            "write one of NoSchedule, PreferNoSchedule, NoExecute",
        ),
        (
            make_pod_json("web-1", qos="Best"),
            'Pod shop/web-1: status.qosClass: "Best" is not a class; write one of Guaranteed, Burstable, BestEffort',
        ),
    ],
)
def test_an_error_is_one_line_with_place_and_fix(document, message):
    with pytest.raises(BadInputError) as refused:
        decode_pod(document)
    assert str(refused.value) == message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_any_value_in_any_place_is_read_or_refused_by_name(data):
    document = make_pod_json(
        "web-1",
        init_containers=[make_container_json("i")],
        container_statuses=[status_json(resources={"requests": {"cpu": "1"}})],
        conditions=[condition("PodResizePending", reason="Deferred")],
        spec={"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k"}]},
    )
    here: Any = document
    while True:
        keys = list(range(len(here))) if isinstance(here, list) else sorted(here)
        key = data.draw(st.sampled_from(keys))
        if not isinstance(here[key], dict | list) or not here[key] or data.draw(st.booleans()):
            break
        here = here[key]
    here[key] = data.draw(json_values)
    try:
        pod = decode_pod(document)
    except BadInputError as refused:
        assert "\n" not in str(refused)
    else:
        assert replace(pod) == pod


@pytest.mark.parametrize(
    ("state", "running"),
    [
        ({"running": {"startedAt": "2026-01-01T00:00:00Z"}}, True),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, False),
        ({"terminated": {"exitCode": 0}}, False),
        (None, True),
    ],
)
def test_a_container_runs_unless_the_kubelet_says_otherwise(state, running):
    report = {"name": "app"} | ({"state": state} if state is not None else {})
    assert decode_bytes(make_pod_json(container_statuses=[report])).containers[0].running is running

"""AdmissionReviews as kube-apiserver sends them, unusual ones included, and its handling of the response."""

import base64
import json
from typing import Any

from hypothesis import strategies as st

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import Pod
from cruise.domain.policy import Mode, Policy
from cruise.domain.usage import StatisticsTable
from cruise.kube_json.objects.owners import NO_OWNERS
from cruise.runtime.admission import PodAdmitter
from cruise.runtime.admission_reviewer import AdmissionReviewer
from tests.builders import NOW, make_node, make_snapshot, make_statistic, make_table, make_workload

Json = dict[str, Any]
UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
POD_KIND = {"group": "", "version": "v1", "kind": "Pod"}
TABLE = make_table(
    make_statistic("", cpu_peak=400, memory_peak_mib=300, memory_7d_max_mib=350),
    make_statistic("", container="proxy", cpu_peak=30, memory_peak_mib=40),
    make_statistic("", container="log", cpu_peak=1000, memory_peak_mib=2000),
)


def make_review(pod: Any, namespace: str = "shop", uid: str = UID, **request: Any) -> Json:
    """A review of a pod in creation; further keywords are fields of the request."""
    whole = {
        "uid": uid,
        "kind": POD_KIND,
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": POD_KIND,
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller", "groups": ["x"]},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": whole | request}


def encode_review(review: Any) -> bytes:
    """As it is sent."""
    return json.dumps(review, separators=(",", ":")).encode()


def make_admitter(
    table: StatisticsTable = TABLE,
    mode: Mode = Mode.INITIAL,
    limit_ranges: tuple[LimitRangeItem, ...] = (),
    **fields: Any,
) -> PodAdmitter:
    """An admitter of namespace shop with one node of 4 CPUs and 16 GiB."""
    ranges = {"shop": limit_ranges} if limit_ranges else {}
    snapshot = make_snapshot(
        [], nodes=[make_node()], workloads=[make_workload()], limit_ranges=ranges, **fields.pop("snapshot", {})
    )
    stored, keys = fields.pop("stored", {}), fields.pop("signing_keys", ())
    return PodAdmitter(snapshot, table, stored, Policy(mode=mode, **fields), NOW, keys)


def make_reviewer(admitter: PodAdmitter | None = None) -> AdmissionReviewer:
    """A reviewer that decides by an admitter."""
    reviewer = AdmissionReviewer(budget_seconds=60)
    reviewer.set_state(admitter or make_admitter(), NO_OWNERS)
    return reviewer


class ReviewRecorder(PodAdmitter):
    """An admitter that keeps what it decided last."""

    last: tuple[Pod, MutatePod | LeaveUnchanged] | None = None

    def admit(self, pod: Pod) -> tuple[Pod, MutatePod | LeaveUnchanged]:
        self.last = super().admit(pod)
        return self.last


def decode_response(answer: bytes) -> Json:
    """The response in an answer, as kube-apiserver checks it."""
    review = json.loads(answer)
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Json = review["response"]
    assert response["allowed"] is True
    assert isinstance(response["uid"], str)
    assert ("patch" in response) == ("patchType" in response)
    assert response.get("patchType", "JSONPatch") == "JSONPatch"
    for warning in response.get("warnings", ()):
        assert warning.isascii()
        assert warning.isprintable()
        assert len(warning) <= 256
    return response


def get_patch(response: Json) -> list[Json]:
    """The operations of a response, none where it leaves the pod as it is."""
    operations: list[Json] = json.loads(base64.b64decode(response.get("patch", "W10="), validate=True))
    return operations


def apply_response_patch(document: Any, operations: list[Json]) -> Any:
    """RFC 6902, word for word: fails where kube-apiserver would answer 500."""
    result = json.loads(json.dumps(document))
    for operation in operations:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].removeprefix("/").split("/")
        ]
        target = result
        for key in parents:
            target = target[int(key)] if isinstance(target, list) else target[key]
        assert isinstance(target, dict), f"{operation['path']} has no object as its parent"
        if operation["op"] == "remove":
            del target[last]
        else:
            assert operation["op"] == "add"
            target[last] = operation["value"]
    return result


cpu_texts = st.sampled_from(["100m", "0.5", "1", "2", "1e0", "250m", "0.1", "1500m", ".25", "1.", "2e-1", "1E0"])
memory_texts = st.sampled_from(
    ["1Gi", "128Mi", "1e3", "1e9", "0.5Gi", "512M", "134217728", "64Mi", "2G", "1.5Gi", "128974848000m", "100k"]
)
other_texts = st.sampled_from(["1Gi", "10Gi"])


@st.composite
def build_amounts(draw: st.DrawFn) -> Json | None:
    """Requests or limits of a container, in any notation, with resources that cruise does not know."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from([None, {}]))
    stated: Json = {}
    if draw(st.booleans()):
        stated["cpu"] = draw(cpu_texts | st.sampled_from([1, 0.5, None]))
    if draw(st.booleans()):
        stated["memory"] = draw(memory_texts | st.sampled_from([1073741824, None]))
    if draw(st.integers(0, 4)) == 0:
        stated["ephemeral-storage"] = draw(other_texts)
    if draw(st.integers(0, 9)) == 0:
        stated["hugepages-2Mi"] = "4Mi"
    return stated


@st.composite
def build_submitted_containers(draw: st.DrawFn, name: str) -> Json:
    """A container with its fields in any order; its resources may be missing, null, or half there."""
    fields: Json = {"name": name, "image": f"registry.example/{name}:1"}
    match draw(st.integers(0, 5)):
        case 0:
            pass
        case 1:
            fields["resources"] = None
        case 2:
            fields["resources"] = {}
        case _:
            fields["resources"] = {
                key: draw(build_amounts()) for key in draw(st.sets(st.sampled_from(["requests", "limits"])))
            }
            if draw(st.integers(0, 5)) == 0:
                fields["resources"]["claims"] = [{"name": "gpu"}]
    keys = draw(st.permutations(sorted(fields)))
    return {key: fields[key] for key in keys}


@st.composite
def build_submitted_pods(draw: st.DrawFn) -> Json:
    """A pod of Deployment web as a user may submit it."""
    names = draw(st.permutations(["app", "proxy", "log"]))[: draw(st.integers(1, 3))]
    spec: Json = {"containers": [draw(build_submitted_containers(name)) for name in names]}
    if "proxy" not in names and draw(st.booleans()):
        sidecar = draw(build_submitted_containers("proxy")) | {"restartPolicy": "Always"}
        setup = draw(build_submitted_containers("setup"))
        spec["initContainers"] = draw(st.permutations([sidecar, setup]))
    elif draw(st.integers(0, 3)) == 0:
        spec["initContainers"] = draw(st.sampled_from([None, []]))
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": True}
    metadata: Json = {"generateName": "web-", "creationTimestamp": None, "ownerReferences": [owner]}
    match draw(st.integers(0, 4)):
        case 0:
            metadata["annotations"] = None
        case 1:
            metadata["annotations"] = {}
        case 2:
            metadata["annotations"] = {"a~b/c~1d": 'é"\\', "cruise.io/memory-min": "64Mi"}
    status = draw(st.sampled_from([{}, {"phase": "Pending", "qosClass": "BestEffort"}]))
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}

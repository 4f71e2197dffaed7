"""From a review to its response: invariants, the cache of responses, and failures."""

import asyncio
import copy
import tracemalloc
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.admission.admission import MutatePod
from cruise.domain.actions import ReasonCode
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import WorkloadRef
from cruise.domain.original_resources import (
    RevisionPeriod,
    WorkloadContainer,
    WorkloadRevisions,
    get_resources_at_creation,
    parse_original_resources,
)
from cruise.domain.policy import AdmissionSize, Mode, Policy
from cruise.kube_json.objects.owners import NO_OWNERS, OwnerIndex, OwnerKey
from cruise.kube_json.objects.pod import decode_pod
from cruise.runtime.admission import PodAdmitter
from cruise.runtime.admission_reviewer import (
    INTERNAL_ERROR,
    NOT_READY,
    PATCH_DIFFERS,
    TOO_LATE,
    UNREADABLE,
    AdmissionReviewer,
    ReviewAnswer,
)
from tests.admission_reviews import (
    TABLE,
    UID,
    ReviewRecorder,
    apply_response_patch,
    build_submitted_pods,
    decode_response,
    encode_review,
    get_patch,
    make_admitter,
    make_review,
    make_reviewer,
)
from tests.builders import (
    NOW,
    NOW_SECONDS,
    make_amounts,
    make_container,
    make_container_json,
    make_node,
    make_pod,
    make_pod_json,
    make_snapshot,
    make_statistic,
    make_table,
    make_workload,
)

limit_ranges = st.sampled_from(
    [
        (),
        (),
        (LimitRangeItem(False, maximum=make_amounts(200, 150)),),
        (LimitRangeItem(False, minimum=make_amounts(500, 64), max_memory_ratio=1.5),),
        (LimitRangeItem(True, maximum=make_amounts(1000, 1000)),),
        (LimitRangeItem(False, default_limits=make_amounts(700, 700)),),
    ]
)


def pod_json(**fields):
    return make_pod_json(name="", node=None, **fields)


def answer_of(reviewer: AdmissionReviewer, pod, **request):
    return decode_response(reviewer.review(encode_review(make_review(pod, **request))))


def without_sizes(pod):
    """The same pod but for what cruise may change."""
    pod = copy.deepcopy(pod)
    for field in ("containers", "initContainers"):
        for container in pod["spec"].get(field) or ():
            for part in ("requests", "limits"):
                stated = (container.get("resources") or {}).get(part)
                for resource in ("cpu", "memory"):
                    (stated or {}).pop(resource, None)
                if not stated:
                    (container.get("resources") or {}).pop(part, None)
            if not container.get("resources"):
                container.pop("resources", None)
    annotations = pod["metadata"].get("annotations") or {}
    annotations.pop(ORIGINAL_RESOURCES, None)
    pod["metadata"]["annotations"] = annotations
    return pod


@given(build_submitted_pods(), limit_ranges)
def test_a_patched_pod_is_what_was_decided_and_is_left_the_next_time(pod, ranges):
    settings = {"limit_ranges": ranges}
    recorder = ReviewRecorder.__new__(ReviewRecorder)
    recorder.__dict__.update(make_admitter(**settings).__dict__)
    reviewer = AdmissionReviewer(budget_seconds=60)
    reviewer.set_state(recorder, NO_OWNERS)
    response = answer_of(reviewer, pod)
    assert response["uid"] == UID
    assert not reviewer.counts.answers[PATCH_DIFFERS]
    assert recorder.last is not None
    created, decision = recorder.last
    operations = get_patch(response)
    assert bool(operations) == isinstance(decision, MutatePod)
    result = apply_response_patch(pod, operations)
    read = decode_pod(result | {"metadata": result["metadata"] | {"namespace": "shop"}, "status": {}})
    assert read.containers == created.containers
    assert read.annotations == created.annotations
    assert without_sizes(result) == without_sizes(pod)
    again = answer_of(reviewer, result)
    assert "patch" not in again
    assert again == {"uid": UID, "allowed": True}


@given(build_submitted_pods(), st.integers(0, 3))
def test_what_is_answered_from_memory_is_what_would_be_decided(pod, seed):
    reviewer = make_reviewer()
    answer_of(reviewer, pod)
    replica = copy.deepcopy(pod)
    replica["spec"]["volumes"] = [{"name": f"kube-api-access-{seed}"}]
    replica["spec"]["containers"][0]["terminationMessagePath"] = f"/dev/{seed}"
    known = answer_of(reviewer, replica, uid="other")
    assert reviewer.counts.from_cache == 1 or not reviewer.counts.answers[("mutated", "peak")]
    assert known == answer_of(make_reviewer(), replica, uid="other")
    assert known["uid"] == "other"


REVISIONS = [("Deployment", "web"), ("Deployment", "box"), ("ReplicaSet", "web-1"), ("ReplicaSet", "web-2")]
GOES_BY_LABELS = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["hash"]}


@given(
    build_submitted_pods(), st.lists(st.sampled_from(REVISIONS), min_size=2, max_size=6), st.booleans(), st.booleans()
)
def test_a_pod_that_others_were_patched_like_is_answered_as_the_first_of_all(pod, revisions, signed, spread):
    keys = (b"key" * 11,) if signed else ()
    several = make_reviewer(make_admitter(signing_keys=keys))
    if spread:
        pod["spec"]["affinity"] = {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [GOES_BY_LABELS]}
        }
    for number, (kind, name) in enumerate(revisions):
        revision = copy.deepcopy(pod)
        revision["metadata"]["labels"] = {"app": "web", "pod-template-hash": name[-1], "hash": str(number)}
        revision["metadata"]["ownerReferences"] = [{"kind": kind, "name": name, "controller": True}]
        alone = make_reviewer(make_admitter(signing_keys=keys))
        assert answer_of(several, revision) == answer_of(alone, revision)


def test_revisions_with_the_same_annotations_differ_only_in_the_signature():
    reviewer = make_reviewer(make_admitter(signing_keys=(b"key" * 11,)))
    pods = [pod_json(owner=f"ReplicaSet/web-{number}", annotations={"a": "b"}) for number in (1, 2)]
    first, second = (get_patch(answer_of(reviewer, pod)) for pod in pods)
    differing = [(one["path"], other["path"]) for one, other in zip(first, second, strict=True) if one != other]
    assert differing == [("/metadata/annotations/cruise.io~1original-resources-signature",) * 2]


def test_the_record_has_what_was_requested():
    pod = pod_json(containers=[make_container_json(cpu="0.5", memory="1e9", cpu_limit="1")])
    result = apply_response_patch(pod, get_patch(answer_of(make_reviewer(), pod)))
    record = parse_original_resources(result["metadata"]["annotations"][ORIGINAL_RESOURCES])
    [(requests, limits)] = record.values()
    assert (requests.cpu_millicores, requests.memory_bytes, limits.cpu_millicores) == (500, 10**9, 1000)


def test_the_metrics_state_the_source_of_each_size():
    known = make_table(make_statistic("", cpu_base=100, cpu_peak=200, memory_base_mib=64, memory_peak_mib=128))
    run = {get_resources_at_creation(make_pod(containers=[make_container(cpu=77)]))[0]: RevisionPeriod(0, NOW_SECONDS)}
    revised = replace(known, revisions=WorkloadRevisions({WorkloadContainer("shop", "Deployment/web", "app"): run}))
    seen = Counter[ReviewAnswer]()
    for table, size in (
        (known, AdmissionSize.PEAK),
        (known, AdmissionSize.NODE_PASS),
        (revised, AdmissionSize.NODE_PASS),
    ):
        reviewer = make_reviewer(make_admitter(table, admission_size=size))
        for _ in range(2):
            answer_of(reviewer, pod_json())
        seen += reviewer.counts.answers
    assert seen == {("mutated", "peak"): 2, ("mutated", "planned"): 2, ("mutated", "stated"): 2}


def test_a_new_state_forgets_what_was_answered_under_the_old():
    reviewer = make_reviewer()
    assert "patch" in answer_of(reviewer, pod_json())
    reviewer.set_state(make_admitter(), NO_OWNERS, ReasonCode.PAUSED)
    assert answer_of(reviewer, pod_json()) == {"uid": UID, "allowed": True}
    assert reviewer.counts.answers == {("mutated", "peak"): 1, ("left", "paused"): 1}
    assert reviewer.counts.from_cache == 0


def test_an_owner_that_is_seen_later_counts_at_once():
    """A CronJob's Job may reach the webhook's watch after its first pod reaches the webhook."""
    controllers: dict[OwnerKey, WorkloadRef | None] = {}
    reviewer = AdmissionReviewer(budget_seconds=60)
    reviewer.set_state(make_admitter(), OwnerIndex(controllers))
    pod = pod_json(owner="Job/web-1")
    assert "patch" not in answer_of(reviewer, pod)
    controllers["shop", "Job", "web-1"] = WorkloadRef("Deployment", "web")
    assert "patch" in answer_of(reviewer, pod)


def admitter_without_owner(table=TABLE) -> PodAdmitter:
    """One whose watches have shown the namespace, and no workload yet."""
    snapshot = replace(make_snapshot([], nodes=[make_node()], workloads=[]), namespaces=frozenset({"shop"}))
    return PodAdmitter(snapshot, table, {}, Policy(mode=Mode.INITIAL), NOW)


async def test_a_pod_seen_before_its_owner_waits_for_the_owner():
    reviewer = make_reviewer(admitter_without_owner())
    review = encode_review(make_review(pod_json(owner="ReplicaSet/web-5d", labels={"pod-template-hash": "5d"})))
    async with asyncio.TaskGroup() as tasks:
        waits = tasks.create_task(reviewer.answer(review))
        await asyncio.sleep(0)
        assert (reviewer.waiting, waits.done()) == (1, False)
        reviewer.set_state(admitter_without_owner(), NO_OWNERS)
        await asyncio.sleep(0)
        assert not waits.done()
        reviewer.set_state(make_admitter(), NO_OWNERS)
    assert "patch" in decode_response(waits.result())
    assert (reviewer.waiting, reviewer.counts.answers) == (0, {("mutated", "peak"): 1})


async def test_a_pod_whose_owner_is_not_seen_in_time_is_left_and_one_without_statistics_does_not_wait():
    review = encode_review(make_review(pod_json(owner="ReplicaSet/web-5d", labels={"pod-template-hash": "5d"})))
    reviewer = AdmissionReviewer(budget_seconds=1)
    reviewer.set_state(admitter_without_owner(), NO_OWNERS)
    assert "patch" not in decode_response(await reviewer.answer(review))
    assert reviewer.counts.answers == {("left", "lookup-pending"): 1}
    stranger = AdmissionReviewer(budget_seconds=3600)
    stranger.set_state(admitter_without_owner(make_table()), NO_OWNERS)
    assert "patch" not in decode_response(await stranger.answer(review))


def test_an_annotation_that_cannot_be_read_is_a_warning_to_the_client():
    response = answer_of(make_reviewer(), pod_json(annotations={"cruise.io/mode": "sideways"}))
    [warning] = response["warnings"]
    assert "patch" not in response
    assert warning.startswith("cruise leaves the pod as it is: pod: cruise.io/mode:")


def test_without_a_stored_state_pods_are_unchanged_with_the_reason():
    reviewer = AdmissionReviewer(budget_seconds=60)
    response = answer_of(reviewer, pod_json())
    assert response["warnings"] == ["cruise leaves the pod as it is: not ready yet"]
    reviewer.set_state(make_admitter(), NO_OWNERS)
    assert reviewer.ready
    reviewer.suspend("nodes: not in sync for 61 s")
    response = answer_of(reviewer, pod_json())
    assert response["warnings"] == ["cruise leaves the pod as it is: nodes: not in sync for 61 s"]
    assert reviewer.counts.answers == {NOT_READY: 2}


@pytest.mark.parametrize(
    ("body", "uid"),
    [(b"", ""), (b'{"request":{"uid":"u-1","object":{"kind":"Pod"', "u-1"), (b"[]", ""), (b"\xff" * 50, "")],
)
def test_garbage_is_allowed_with_a_warning(body, uid):
    reviewer = make_reviewer()
    response = decode_response(reviewer.review(body))
    assert response["uid"] == uid
    assert len(response["warnings"]) == 1
    assert reviewer.counts.answers == {UNREADABLE: 1}


class Broken(PodAdmitter):
    """An admitter with a mistake in it."""

    def __init__(self) -> None:
        pass

    def admit(self, pod):
        raise KeyError("a mistake")


def test_an_internal_error_creates_the_pod_unchanged_and_is_counted(capsys):
    reviewer = make_reviewer(Broken())
    response = answer_of(reviewer, pod_json())
    assert response["warnings"] == ["cruise leaves the pod as it is: deciding failed"]
    assert reviewer.counts.answers == {INTERNAL_ERROR: 1}
    assert "a mistake" in capsys.readouterr().out


class Lying(ReviewRecorder):
    """An admitter whose pod is not one that a patch of resources can give."""

    def admit(self, pod):
        created, decision = super().admit(pod)
        return replace(created, priority=99), decision


def test_an_unverified_patch_is_not_sent():
    admitter = Lying.__new__(Lying)
    admitter.__dict__.update(make_admitter().__dict__)
    reviewer = make_reviewer(admitter)
    response = answer_of(reviewer, pod_json())
    assert "patch" not in response
    assert response["warnings"] == ["cruise leaves the pod as it is: the patched pod differs from the decision"]
    assert reviewer.counts.answers == {PATCH_DIFFERS: 1}


def test_every_review_is_in_the_histogram():
    reviewer = make_reviewer()
    for body in (encode_review(make_review(pod_json())), encode_review(make_review(pod_json())), b"garbage"):
        reviewer.review(body)
    assert sum(reviewer.counts.seconds) == 3
    assert 0 < reviewer.counts.seconds_sum < 60
    assert sum(reviewer.counts.answers.values()) == 3


def test_no_more_answers_are_remembered_than_memory_allows(monkeypatch):
    monkeypatch.setattr("cruise.runtime.admission_reviewer._MAX_ANSWER_BYTES", 1500)
    reviewer = make_reviewer()
    for name in ("a", "b", "c", "c", "a"):
        labels = {"app": name, "pod-template-hash": "7d9f8b6c5d"}
        assert "patch" in answer_of(reviewer, pod_json(labels=labels))
    assert reviewer.counts.from_cache == 1


# ---- what would take too long ----

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def bounded_out(reviewer, pod):
    """The reason that a pod is skipped for, which its creator must get as a warning too."""
    before = Counter(reviewer.counts.answers)
    answer = answer_of(reviewer, pod)
    assert not get_patch(answer)
    assert answer["warnings"]
    [verdict] = reviewer.counts.answers - before
    return verdict


def test_twenty_thousand_affinity_terms_on_two_hundred_nodes_are_not_evaluated():
    snapshot = make_snapshot([], nodes=[make_node(f"n-{number}") for number in range(200)], workloads=[make_workload()])
    admitter = PodAdmitter(snapshot, TABLE, {}, Policy(mode=Mode.INITIAL), NOW)
    reviewer = make_reviewer(admitter)
    pod = pod_json()
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["nowhere"]}]}
    pod["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term] * 20_000}}}
    assert bounded_out(reviewer, pod) == ("left", "too-large")
    pod["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}] * 5_000}}}
    assert bounded_out(reviewer, pod) == ("left", "too-many-affinity-terms")
    assert admitter._nodes.evaluated == 0
    pod["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term] * 300}}}
    assert get_patch(answer_of(reviewer, pod))
    # Once to decide, and a second look at the patched pod costs no more.
    assert admitter._nodes.evaluated == 300


def test_sixty_thousand_annotations_are_not_read():
    reviewer = make_reviewer()
    pod = pod_json()
    pod["metadata"]["annotations"] = {f"key-{number}": "" for number in range(60_000)}
    assert bounded_out(reviewer, pod) == ("left", "too-large")
    pod["metadata"]["annotations"] = {f"key-{number}": "" for number in range(1_001)}
    assert bounded_out(reviewer, pod) == ("left", "too-many-annotations")


def _long_label(pod, text):
    pod["metadata"]["labels"]["x"] = text


def _long_annotation(pod, text):
    pod["metadata"]["annotations"] = {"cruise.io/cpu-max": text}


def _long_record(pod, text):
    pod["metadata"]["annotations"] = {ORIGINAL_RESOURCES: f'{{"{text}":{{}}}}'}


def _long_owner(pod, text):
    pod["metadata"]["ownerReferences"][0]["name"] = text


def _long_selector(pod, text):
    pod["spec"]["nodeSelector"] = {"x": text}


def _long_toleration(pod, text):
    pod["spec"]["tolerations"] = [{"key": text}]


def _long_name(pod, text):
    pod["spec"]["containers"][0]["name"] = text


def _long_resource(pod, text):
    pod["spec"]["containers"][0]["resources"]["limits"] = {f"attachable-volumes-{text}": "1"}


def _long_claim(pod, text):
    pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": text}}]


LONG_TEXTS = [
    _long_label,
    _long_annotation,
    _long_record,
    _long_owner,
    _long_selector,
    _long_toleration,
    _long_name,
    _long_resource,
    _long_claim,
]


@pytest.mark.parametrize("put", LONG_TEXTS)
def test_long_texts_of_very_many_pods_are_not_kept(put):
    # The API server looks at the length of names and labels only after the webhook has answered.
    reviewer = make_reviewer()
    answer_of(reviewer, pod_json())
    tracemalloc.start()
    try:
        for number in range(60):
            pod = pod_json(containers=[make_container_json()])
            put(pod, f"{number}-" + "x" * 900_000)
            assert answer_of(reviewer, pod)["allowed"]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 40 << 20


def test_too_much_is_remembered():
    reviewer = make_reviewer()
    pod = pod_json()
    pod["spec"]["tolerations"] = [{"operator": "Exists"}] * 201
    assert bounded_out(reviewer, pod) == ("left", "too-many-tolerations")
    answer_of(reviewer, pod)
    assert (reviewer.counts.from_cache, reviewer.decided) == (1, 1)


@pytest.mark.parametrize("amount", ["9" * 400, "1" + "0" * 4999, "-" + "9" * 400])
@pytest.mark.parametrize("quoted", [True, False])
def test_a_quantity_of_hundreds_of_digits_is_answered_unchanged(amount, quoted):
    reviewer = make_reviewer()
    review = encode_review(make_review(pod_json(containers=[make_container_json(cpu="THAT")])))
    body = review.replace(b'"THAT"', f'"{amount}"'.encode() if quoted else amount.encode())
    answer = decode_response(reviewer.review(body))
    assert not get_patch(answer)
    assert answer["warnings"]
    assert reviewer.counts.answers == {UNREADABLE: 1}


def test_what_waited_too_long_is_answered_unchanged():
    now = 100.0
    reviewer = AdmissionReviewer(budget_seconds=1.0, clock=lambda: now)
    reviewer.set_state(make_admitter(), NO_OWNERS)
    body = encode_review(make_review(pod_json()))
    answer = decode_response(reviewer.review(body, received_at=98.9))
    assert not get_patch(answer)
    assert answer["warnings"]
    assert reviewer.counts.answers == {TOO_LATE: 1}
    assert get_patch(decode_response(reviewer.review(body, received_at=99.1)))


def test_what_takes_too_long_to_decide_is_answered_unchanged():
    times = iter(range(100))
    reviewer = AdmissionReviewer(budget_seconds=1.5, clock=lambda: float(next(times)))
    reviewer.set_state(make_admitter(), NO_OWNERS)
    assert not get_patch(decode_response(reviewer.review(encode_review(make_review(pod_json())))))
    assert reviewer.counts.answers == {TOO_LATE: 1}


def test_a_jvm_keeps_the_limit_that_its_heap_needs():
    # The statistics have a largest use of 350 MiB: twice that would leave a heap of 175 MiB.
    container = make_container_json(memory="2Gi", memory_limit="4Gi", command=["java", "-jar", "app.jar"])
    reviewer, limits = make_reviewer(), []
    for one in (container, container | {"command": ["app"]}):
        pod = make_pod_json(name="", node=None, containers=[one])
        response = decode_response(reviewer.review(encode_review(make_review(pod))))
        patched = apply_response_patch(pod, get_patch(response))
        limits.append(patched["spec"]["containers"][0]["resources"]["limits"]["memory"])
    assert limits == ["1400Mi", "700Mi"]

"""Equal values share one object, and unused values are freed."""

import gc
from dataclasses import dataclass

import msgspec

from cruise.kube_json.objects.containers import SharedValues
from cruise.kube_json.objects.pod import PodDecoder
from cruise.kube_json.wire.pod_json import PodObject
from tests.builders import make_container_json, make_pod_json

JOB = msgspec.json.encode(
    make_pod_json(
        "job-@",
        owner="Job/job-@",
        containers=[make_container_json(cpu="@m")],
        labels={"job-name": "job-@"},
        spec={"nodeSelector": {"pool": "p@"}},
    )
)


@dataclass(frozen=True)
class Value:
    number: int


def test_equal_values_are_one_object():
    shared: SharedValues[Value, Value] = SharedValues()
    first, second = Value(1), Value(1)
    assert shared.share(first, lambda: first) is first
    assert shared.share(second, lambda: second) is first


def test_referenced_values_are_kept_and_others_dropped():
    by_itself: SharedValues[Value, Value] = SharedValues()
    by_key: SharedValues[int, Value] = SharedValues()
    held = []
    for number in range(20_000):
        one, other = Value(number), Value(number)
        by_itself.store(one, one)
        by_key.store(number, other)
        if number % 100 == 0:
            held += [one, other]
    assert len(by_itself) < 4000
    assert len(by_key) < 4000
    for value in held:
        assert by_itself.get(value) is value or by_key.get(value.number) is value


def containers_alive() -> int:
    gc.collect()
    return sum(type(one).__name__ in ("Container", "Placement", "WorkloadRef") for one in gc.get_objects())


def test_memory_of_a_long_running_reader_is_proportional_to_referenced_values():
    reader = PodDecoder()
    held = [reader.read(pod_number(number)) for number in range(500)]
    before = containers_alive()
    sizes = []
    for number in range(9_000):
        reader.read(pod_number(number))
        if number % 1_500 == 1_499:
            sizes.append(containers_alive())
    # Each of the tables keeps a thousand of the latest, and no more however many come.
    assert max(sizes) - before < 4_000
    assert len({id(pod.containers[0]) for pod in held}) == 500


def pod_number(number: int) -> PodObject:
    return msgspec.json.decode(JOB.replace(b"@", str(number + 1).encode()), type=PodObject)


def test_pods_read_later_share_with_those_read_before():
    reader = PodDecoder()
    document = make_pod_json(containers=[make_container_json(memory_limit="1Gi")], spec={"nodeSelector": {"a": "b"}})
    early = reader.read(msgspec.convert(document, PodObject))
    for number in range(30_000):
        reader.read(pod_number(number))
    late = reader.read(msgspec.convert(document, PodObject))
    assert late.containers[0] is early.containers[0]
    assert late.labels is early.labels
    assert late.placement is early.placement
    assert late.workload is early.workload

"""Heap bounds: every recognized form, rejected ones, and that no text raises or leaks."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.cluster import ContainerRole
from cruise.domain.heaps import HeapBound, HeapRuntime
from cruise.domain.resources import MEBIBYTE
from cruise.kube_json.admission_review import ReviewRequest, get_created_pod
from cruise.kube_json.objects.environment import ContainerEnvironment
from cruise.kube_json.objects.heaps import HeapBoundReader
from cruise.kube_json.objects.pod import PodDecoder, decode_pod
from cruise.kube_json.reading.snapshot import read_snapshot
from cruise.kube_json.reading.stream import StreamDecoder
from cruise.kube_json.wire.pod_json import ContainerSpec, PodObject
from tests.builders import make_container_json, make_list_json, make_pod_json

read_heap_bound = HeapBoundReader().read
GIBIBYTE = 1024 * MEBIBYTE
LIMIT = 4 * GIBIBYTE


def spec(env=None, limit="4Gi", request="2Gi", variables=(), **more) -> ContainerSpec:
    plain = [{"name": name, "value": value} for name, value in (env or {}).items()]
    resources = {"limits": {"memory": limit} if limit else {}, "requests": {"memory": request} if request else {}}
    document = {"name": "app", "image": "acme/app:1", "resources": resources, "env": [*variables, *plain]} | more
    return msgspec.convert(document, ContainerSpec)


def read(*args, **more) -> HeapBound:
    bound = read_heap_bound(spec(*args, **more))
    assert bound is not None
    return bound


def heap_mib(bound: HeapBound, limit: int = LIMIT, request: int = LIMIT // 2) -> int:
    return bound.compute_heap(limit, request) // MEBIBYTE


def reference(name: str, resource: str = "limits.memory", **more):
    return {"name": name, "valueFrom": {"resourceFieldRef": {"resource": resource} | more}}


def from_secret(name: str):
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


@pytest.mark.parametrize(
    ("env", "mebibytes", "source"),
    [
        ({"JAVA_TOOL_OPTIONS": "-Xmx512m"}, 512, "-Xmx512m in JAVA_TOOL_OPTIONS"),
        ({"JAVA_TOOL_OPTIONS": "-Xmx2G -Dx=y"}, 2048, "-Xmx2G in JAVA_TOOL_OPTIONS"),
        ({"JAVA_TOOL_OPTIONS": "'-Xmx512m' \"-XX:+UseG1GC\""}, 512, "-Xmx512m in JAVA_TOOL_OPTIONS"),
        ({"JAVA_TOOL_OPTIONS": "-XX:MaxHeapSize=1073741824"}, 1024, "-XX:MaxHeapSize=1073741824 in JAVA_TOOL_OPTIONS"),
        ({"JAVA_TOOL_OPTIONS": "-Xmx1g -Xmx3g"}, 3072, "-Xmx3g in JAVA_TOOL_OPTIONS"),
        ({"JAVA_TOOL_OPTIONS": "-XX:MaxRAMPercentage=75.0"}, 3072, "-XX:MaxRAMPercentage=75.0 in JAVA_TOOL_OPTIONS"),
        ({"JAVA_TOOL_OPTIONS": "-XX:MaxRAM=2g"}, 512, "-XX:MaxRAM=2g in JAVA_TOOL_OPTIONS"),
        ({"JAVA_TOOL_OPTIONS": "-XX:MaxRAM=2g -XX:MaxRAMPercentage=50"}, 1024, "-XX:MaxRAM=2g in JAVA_TOOL_OPTIONS"),
        ({"JAVA_TOOL_OPTIONS": "-XX:MaxRAMFraction=2"}, 2048, "-XX:MaxRAMFraction=2 in JAVA_TOOL_OPTIONS"),
        ({"JAVA_TOOL_OPTIONS": "-Xms3g"}, 3072, "the JVM's default of 25 % of the memory limit"),
        ({"JAVA_TOOL_OPTIONS": "-Xmx1g", "JDK_JAVA_OPTIONS": "-Xmx2g"}, 2048, "-Xmx2g in JDK_JAVA_OPTIONS"),
        ({"_JAVA_OPTIONS": "-Xmx3g", "JDK_JAVA_OPTIONS": "-Xmx2g"}, 3072, "-Xmx3g in _JAVA_OPTIONS"),
        ({"ES_JAVA_OPTS": "-Xms1g -Xmx1g"}, 1024, "-Xmx1g in ES_JAVA_OPTS"),
        ({"JAVA_OPTS": "-Xmx2g"}, 2048, "-Xmx2g in JAVA_OPTS, if the image reads it"),
        ({"A": "-Xmx3g", "B": "-Xmx2g"}, 3072, "-Xmx3g in A, if the image reads it"),
        ({"HEAP": "2g", "JAVA_TOOL_OPTIONS": "-Xmx$(HEAP)"}, 2048, "-Xmx2g in JAVA_TOOL_OPTIONS"),
        ({"GOMEMLIMIT": "900MiB"}, 900, "900MiB in GOMEMLIMIT"),
        ({"GOMEMLIMIT": "1073741824"}, 1024, "1073741824 in GOMEMLIMIT"),
        ({"AUTOMEMLIMIT": "0.5"}, 2048, "0.5 in AUTOMEMLIMIT"),
        ({"NODE_OPTIONS": "--max-old-space-size=400"}, 400, "--max-old-space-size=400 in NODE_OPTIONS"),
        ({"NODE_OPTIONS": "--max_old_space_size=400"}, 400, "--max_old_space_size=400 in NODE_OPTIONS"),
        (
            {"NODE_OPTIONS": "--max-old-space-size-percentage=25"},
            1024,
            "--max-old-space-size-percentage=25 in NODE_OPTIONS",
        ),
        ({"DOTNET_GCHeapHardLimit": "0x20000000"}, 512, "0x20000000 (hexadecimal) in DOTNET_GCHeapHardLimit"),
        ({"COMPlus_GCHeapHardLimit": "20000000"}, 512, "20000000 (hexadecimal) in COMPlus_GCHeapHardLimit"),
        ({"DOTNET_GCHeapHardLimitPercent": "32"}, 2048, "32 (hexadecimal) in DOTNET_GCHeapHardLimitPercent"),
    ],
)
def test_variables_state_the_heap(env, mebibytes, source):
    bound = read(env)
    assert (heap_mib(bound), bound.source) == (mebibytes, source)


@pytest.mark.parametrize(
    ("command", "mebibytes"),
    [
        (["java", "-Xmx1g", "-jar", "app.jar"], 1024),
        (["/opt/jdk/bin/java", "-Xmx1g", "-Xmx2g", "Main"], 2048),
        (["java", "-Xmx1g", "-jar", "app.jar", "-Xmx3g"], 1024),
        (["sh", "-c", "exec java -Xmx${HEAP} -jar app.jar"], 2048),
        (["sh", "-c", "java $JAVA_OPTS -jar app.jar"], 3072),
        (["node", "--max-old-space-size=512", "server.js"], 512),
    ],
)
def test_commands_state_the_heap(command, mebibytes):
    env = {"HEAP": "2g", "JAVA_OPTS": "-Xmx3g"} if "sh" in command else {}
    bound = read(env, command=command)
    assert (heap_mib(bound), bound.source.endswith("in command or args")) == (mebibytes, True)
    image = "openjdk:21" if "java" in str(command) else "node:22"
    assert read(env, args=command[1:], image=image) == bound


def test_a_variable_that_only_the_image_sets_leaves_the_bound_unknown():
    assert not read(command=["sh", "-c", "java -Xmx${HEAP} -jar app.jar"]).is_known
    assert not read(command=["sh", "-c", "java $JAVA_OPTS -jar app.jar"]).is_stated


def test_the_command_wins_over_the_variables_before_it_and_not_over_the_last_one():
    env = {"JAVA_TOOL_OPTIONS": "-Xmx3g"}
    assert heap_mib(read(env, command=["java", "-Xmx1g", "Main"])) == 1024
    assert heap_mib(read(env | {"_JAVA_OPTIONS": "-Xmx2g"}, command=["java", "-Xmx1g", "Main"])) == 2048


def test_a_reference_to_the_limit_is_a_share_of_it():
    whole = read(variables=[reference("GOMEMLIMIT")])
    assert (whole.limit_share, whole.source) == (1.0, "(the memory limit) in GOMEMLIMIT")
    in_mebibytes = [reference("LIMIT", divisor="1Mi")]
    assert read({"JAVA_TOOL_OPTIONS": "-Xmx$(LIMIT)m"}, variables=in_mebibytes).limit_share == 1.0
    assert read({"JAVA_TOOL_OPTIONS": "-Xmx1g -Dmax=$(LIMIT)"}, variables=in_mebibytes).fixed_bytes == GIBIBYTE
    requested = read(variables=[reference("GOMEMLIMIT", "requests.memory")])
    assert (requested.request_share, requested.limit_share) == (1.0, 0.0)
    # Kubernetes rounds up.
    assert read(variables=[reference("GOMEMLIMIT", divisor="3")], limit="10").limit_share == pytest.approx(0.4)


@pytest.mark.parametrize(
    "variables",
    [
        [from_secret("JAVA_TOOL_OPTIONS")],
        [from_secret("GOMEMLIMIT")],
        [from_secret("NODE_OPTIONS")],
        [from_secret("DOTNET_GCHeapHardLimit")],
        [from_secret("HEAP"), {"name": "JAVA_TOOL_OPTIONS", "value": "-Xmx$(HEAP)"}],
        [reference("GOMEMLIMIT", containerName="other")],
        [reference("GOMEMLIMIT", divisor="x")],
        [{"name": "JAVA_TOOL_OPTIONS", "value": "-XX:-UseContainerSupport"}],
    ],
)
def test_a_value_that_the_pod_does_not_show_leaves_the_bound_unknown(variables):
    bound = read(variables=variables)
    assert not bound.is_known
    assert bound.compute_memory(LIMIT, LIMIT) == 0
    assert bound.follows_size


@pytest.mark.parametrize("form", ["$(A{0})$(A{0})", "${{A{0}}}$A{0}"], ids=["kubelet", "shell"])
def test_references_do_not_multiply_a_text_without_end(form):
    """Sixty variables that each repeat the one before would take all memory, of serve and of the webhook."""
    doubled = {"A0": "-Xmx1g "} | {f"A{number}": f"$(A{number - 1})$(A{number - 1})" for number in range(1, 23)}
    container = spec(doubled | {"JAVA_TOOL_OPTIONS": "$(A22)"}, command=["sh", "-c", f"exec java {form.format(15)}"])
    environment = ContainerEnvironment(container, [str(one) for one in container.command or ()])
    lengths = [*map(len, environment.variables.values()), *map(len, environment.words)]
    assert sum(lengths) < 1 << 20
    assert environment.get_text("A9") == ("-Xmx1g " * 512).strip()
    assert environment.is_unreadable("JAVA_TOOL_OPTIONS")
    assert not read(doubled | {"JAVA_TOOL_OPTIONS": "$(A22)"}).is_known


def test_without_a_limit_a_share_of_it_has_no_bound():
    assert not read(variables=[reference("GOMEMLIMIT")], limit=None).is_known
    assert read({"JAVA_TOOL_OPTIONS": "-XX:MaxRAMPercentage=75"}, limit=None).compute_memory(0, LIMIT) == 0


@pytest.mark.parametrize(
    ("image", "runtime"),
    [
        ("eclipse-temurin:21", HeapRuntime.JVM),
        ("docker.io/library/openjdk@sha256:1", HeapRuntime.JVM),
        ("registry.acme:5000/base/amazoncorretto:17", HeapRuntime.JVM),
        ("docker.elastic.co/elasticsearch/elasticsearch:8", HeapRuntime.JVM),
        ("confluentinc/cp-kafka", HeapRuntime.JVM),
        ("node:22-alpine", HeapRuntime.NODE),
        ("mcr.microsoft.com/dotnet/aspnet:8.0", HeapRuntime.DOTNET),
        ("prom/node-exporter:v1", None),
        ("danielqsj/kafka-exporter", None),
        ("quay.io/strimzi/operator", None),
        ("golang:1.22", None),
        ("jdk.registry.acme/nginx", None),
    ],
)
def test_images_suggest_a_runtime_with_its_default(image, runtime):
    bound = read_heap_bound(spec(image=image))
    assert (bound and bound.runtime) == runtime
    if bound is not None:
        assert (bound.is_stated, bound.holds_request) == (False, False)
        assert heap_mib(bound) == {HeapRuntime.JVM: 1024, HeapRuntime.NODE: 2048, HeapRuntime.DOTNET: 3072}[runtime]
        unread = read_heap_bound(spec(image=image, envFrom=[{"configMapRef": {"name": "x"}}]))
        assert unread is not None
        assert not unread.is_known


@pytest.mark.parametrize(
    ("limit_mib", "heap_mebibytes", "percent"),
    # `java -XX:MaxRAM=…m -XX:+PrintFlagsFinal` of OpenJDK 17.
    [(100, 50, None), (200, 100, None), (260, 126, None), (300, 126, None), (512, 128, None), (1024, 256, None)],
)
def test_small_limits_give_the_jvm_more_than_its_share(limit_mib, heap_mebibytes, percent):
    bound = read(command=["java", "Main"])
    assert heap_mib(bound, limit_mib * MEBIBYTE) == heap_mebibytes


@pytest.mark.parametrize(
    "env",
    [
        {"GOMEMLIMIT": "off"},
        {"GOMEMLIMIT": "lots"},
        {"GOMEMLIMIT": ""},
        {"AUTOMEMLIMIT": "off"},
        {"JAVA_TOOL_OPTIONS": "-Xmx"},
        {"JAVA_TOOL_OPTIONS": "-Xmx12x -XX:MaxRAMPercentage=120"},
        {"NODE_OPTIONS": "--max-old-space-size=many"},
        {"DOTNET_GCHeapHardLimit": "12g"},
        {"DOTNET_GCConserveMemory": "9"},
        {"XMX": "2g"},
    ],
)
def test_what_states_no_bound_gets_none(env):
    assert read_heap_bound(spec(env)) is None


def test_requests_are_held_only_where_the_process_takes_the_whole_heap():
    assert read({"JAVA_TOOL_OPTIONS": "-Xmx1g"}).holds_request
    assert read({"DOTNET_GCHeapHardLimit": "20000000"}).holds_request
    assert not read({"JAVA_OPTS": "-Xmx1g"}).holds_request
    assert not read({"NODE_OPTIONS": "--max-old-space-size=400"}).holds_request
    assert not read({"GOMEMLIMIT": "1GiB"}).holds_request
    assert read({"GOMEMLIMIT": "1GiB", "GOGC": "off"}).holds_request


def test_direct_memory_and_semi_spaces_are_added():
    extra = read({"JAVA_TOOL_OPTIONS": "-Xmx1g -XX:MaxDirectMemorySize=512m"}).extra_bytes
    assert extra == 512 * MEBIBYTE
    assert read({"NODE_OPTIONS": "--max-semi-space-size=64 --max-old-space-size=400"}).extra_bytes == 192 * MEBIBYTE


PARTS = (
    "-Xmx",
    "1g",
    "$(A)",
    "$$(A)",
    "${A}",
    "$A",
    "\ue000",
    "\ue003",
    "-XX:MaxRAMPercentage=",
    "MiB",
    " ",
    "'",
    "0x",
)
texts = st.text(max_size=12) | st.sampled_from(PARTS)
joined = st.lists(texts, max_size=6).map("".join)
names = st.sampled_from(
    [
        *("A", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JAVA_OPTS", "GOMEMLIMIT", "AUTOMEMLIMIT", "NODE_OPTIONS"),
        *("DOTNET_GCHeapHardLimit", "DOTNET_GCHeapHardLimitPercent", "GOGC", "KAFKA_HEAP_OPTS"),
    ]
)
sources = st.one_of(
    st.builds(lambda name, value: {"name": name, "value": value}, names, joined | st.integers() | st.booleans()),
    st.builds(reference, names, st.sampled_from(["limits.memory", "requests.memory", "limits.cpu", ""])),
    st.builds(from_secret, names),
)
words = st.lists(joined | st.sampled_from(["java", "node", "sh", "-c", "-jar"]), max_size=5)


@given(st.lists(sources, max_size=6), words, words, joined, st.sampled_from([None, "1Gi", "x", "0"]), st.booleans())
def test_no_text_raises_and_no_bound_is_negative(env, command, args, image, limit, has_env_from):
    more: dict[str, Any] = {"envFrom": [{}]} if has_env_from else {}
    found = read_heap_bound(spec(variables=env, command=command, args=args, image=image, limit=limit, **more))
    if found is not None:
        assert 0 <= found.compute_heap(GIBIBYTE, GIBIBYTE) <= found.compute_memory(GIBIBYTE, GIBIBYTE)
        assert found.compute_memory(1 << 53, 1 << 53) < 1 << 62
        assert not set(found.source) & set("\ue000\ue001\ue002\ue003")


@given(st.integers(1, 1 << 20), st.sampled_from([("k", 10), ("m", 20), ("g", 30), ("", 0)]))
def test_sizes_are_read_as_they_are_written(amount, unit):
    letter, bits = unit
    expected = min(amount << bits, 1 << 53)
    for text in (f"-Xmx{amount}{letter}", f"-XX:MaxHeapSize={amount}{letter.upper()}"):
        assert read({"JAVA_TOOL_OPTIONS": text}).fixed_bytes == expected
    assert read({"DOTNET_GCHeapHardLimit": f"{amount:x}"}).fixed_bytes == amount
    assert read({"GOMEMLIMIT": f"{amount}KiB"}).fixed_bytes == amount << 10


# Of characters that no name of a field has twelve of in a row.
@given(st.text(min_size=12, max_size=20, alphabet="jkqvwxyz0123456789"))
def test_other_values_are_not_kept(secret):
    env = [{"name": "DB_PASSWORD", "value": secret}, {"name": "JAVA_TOOL_OPTIONS", "value": f"-Xmx1g -Dp={secret}"}]
    container = make_container_json(env=env, command=["java", f"-Dkey={secret}", "Main"])
    reader = PodDecoder()
    pod = reader.read(msgspec.convert(make_pod_json(containers=[container]), PodObject))
    assert pod.containers[0].heap is not None
    assert secret not in repr(pod) and secret not in repr(reader)


def test_watches_files_and_reviews_read_the_same():
    env = [reference("LIMIT", divisor="1Mi"), {"name": "JAVA_TOOL_OPTIONS", "value": "-Xmx$(LIMIT)m"}]
    document = make_pod_json(containers=[make_container_json(memory_limit="1Gi", env=env)], node=None)
    expected = decode_pod(document).containers[0].heap
    assert expected is not None and expected.limit_share == 1.0
    [item] = StreamDecoder(PodObject).decode_page(json.dumps(make_list_json(document)).encode()).items
    in_file = read_snapshot([json.dumps(make_list_json(document)).encode()], "a file").pods[0]
    created = get_created_pod(ReviewRequest(namespace="shop", object=msgspec.Raw(json.dumps(document).encode())))
    for pod in (PodDecoder().read(item), in_file, PodDecoder().read(created)):
        assert pod.containers[0].heap == expected


def test_equal_containers_share_their_bound_and_init_containers_count_too():
    env = [{"name": "JAVA_TOOL_OPTIONS", "value": "-Xmx1g"}]
    reader = PodDecoder()
    pods = [
        reader.read(
            msgspec.convert(
                make_pod_json(f"web-{at}", containers=[make_container_json(env=env)], node=f"n{at}"), PodObject
            )
        )
        for at in range(3)
    ]
    assert len({id(pod.containers[0]) for pod in pods}) == 1
    sidecar = make_container_json("proxy", restartPolicy="Always", env=[{"name": "GOMEMLIMIT", "value": "64MiB"}])
    pod = decode_pod(make_pod_json(init_containers=[sidecar]))
    assert [(one.role, one.heap is None) for one in pod.containers] == [
        (ContainerRole.SIDECAR, False),
        (ContainerRole.MAIN, True),
    ]

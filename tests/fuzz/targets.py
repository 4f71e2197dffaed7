"""Fuzz targets: untrusted input with examples, the code that reads it, and the errors that it may raise."""

import asyncio
import json
import string
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from cruise.adapters.kube.cache import ClusterCache
from cruise.adapters.kube.kinds import ALL_KINDS
from cruise.adapters.prometheus.counter_rows import CounterReadingOptions, EarlierCounters
from cruise.adapters.prometheus.counters import UsageAnswers, compute_usage
from cruise.adapters.prometheus.queries import MatrixDecoder, NodeLoadDecoder
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.annotations import UnreadableAnnotations
from cruise.domain.original_resources import format_original_resources, parse_original_resources
from cruise.domain.overrides import format_settings, parse_overrides
from cruise.domain.resources import (
    LARGEST_QUANTITY,
    QuantityError,
    format_cpu_millicores,
    format_memory_bytes,
    parse_cpu_millicores,
    parse_memory_bytes,
)
from cruise.errors import BadInputError, UnavailableError
from cruise.kube_json.reading.stream import BookmarkEvent, ChangedEvent, DeletedEvent, StreamDecoder, WatchError
from cruise.kube_json.reading.stream import UnreadableObject as Unreadable
from cruise.simulation.store import InMemoryStore
from tests.admission_reviews import (
    apply_response_patch,
    decode_response,
    encode_review,
    get_patch,
    make_admitter,
    make_review,
    make_reviewer,
)
from tests.builders import (
    make_autoscaler_json,
    make_budget_json,
    make_container_json,
    make_deployment_json,
    make_limit_range_json,
    make_namespace_json,
    make_node_json,
    make_pod_json,
    make_replica_set_json,
)
from tests.interfaces.http.api_scene import TOKEN, ApiScene, PolicyObjects, make_busy_scene

FIRST, LAST, STEP = 1_700_000_000, 1_700_000_240, 60
POLICY = "/api/v1/policies/shop/Deployment/web"
# After so many objects the cluster is created again, so that growing memory shows a leak.
OBJECTS = 500


@dataclass(frozen=True, slots=True)
class Target:
    """Initial examples, and the function that reads one case; with `is_json` the parts of a document are mutated.

    `kept_bytes` is what atheris itself keeps of a case at most: every array that a comparison of numpy's returns.
    """

    examples: Sequence[bytes]
    feed: Callable[[bytes], None]
    is_json: bool = True
    kept_bytes: int = 0


JVM: dict[str, Any] = {
    "command": ["sh", "-c", "exec java $JAVA_OPTS -Xmx$(HEAP) -jar app.jar"],
    "env": [
        {"name": "HEAP", "value": "512m"},
        {"name": "JAVA_OPTS", "value": "-XX:MaxRAMPercentage=75.0"},
        {"name": "GOMEMLIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
    ],
    "memory_limit": "1Gi",
}


def reviews() -> Target:
    """Reviews of pods: always answered, always allowed, and each patch applies to the pod."""
    sized = make_container_json(requests={"cpu": "500m", "memory": "1Gi"}, limits={"cpu": "1", "memory": "2Gi"})
    pods = [
        make_pod_json(name="", node=None),
        make_pod_json(name="", node=None, containers=[sized, make_container_json("proxy")]),
        make_pod_json(name="", node=None, containers=[make_container_json(**JVM)]),
        make_pod_json(name="", node=None, annotations={"cruise.io/mode": "initial", "cruise.io/cpu-max": "300m"}),
    ]
    admitter = make_admitter()

    def feed(data: bytes) -> None:
        response = decode_response(make_reviewer(admitter).review(data))
        if operations := get_patch(response):
            # Skipped values are not decoded, so they may be no text.
            apply_response_patch(json.loads(data.decode("utf-8", "replace"))["request"]["object"], operations)

    return Target([encode_review(make_review(pod)) for pod in pods], feed)


def annotations() -> Target:
    """Override annotations and the record of original resources: read, or unreadable with the reason."""
    examples: list[Mapping[str, str]] = [
        {"cruise.io/mode": "resize", "cruise.io/eviction-ranking": "low", "cruise.io/resources": "cpu,memory"},
        {"cruise.io/cpu-min": "100m", "cruise.io/memory-max.app": "2Gi", "cruise.io/headroom-factor": "1.5"},
        {"cruise.io/original-resources": '{"app":{"requests":{"cpu":"1"},"limits":{"memory":"1Gi"}}}'},
    ]

    def feed(data: bytes) -> None:
        given = _strings(data)
        read = parse_overrides(given)
        if not isinstance(read, UnreadableAnnotations):
            again = parse_overrides({f"cruise.io/{name}": value for name, value in format_settings(read).items()})
            assert again == read, f"{read} is written as {format_settings(read)}"
        for text in given.values():
            try:
                originals = parse_original_resources(text)
            except ValueError:
                continue
            assert parse_original_resources(format_original_resources(originals)) == originals

    return Target([json.dumps(one).encode() for one in examples], feed)


def quantities() -> Target:
    """Quantities: within Kubernetes' bounds, and read again as the same once written; or refused in one line."""

    def feed(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        for parse, write in (
            (parse_cpu_millicores, format_cpu_millicores),
            (parse_memory_bytes, format_memory_bytes),
        ):
            try:
                amount = parse(text)
            except QuantityError as error:
                assert len(str(error)) < 200
                continue
            assert -LARGEST_QUANTITY <= amount <= LARGEST_QUANTITY
            assert amount < 0 or parse(write(amount)) == amount

    texts = ("500m", "1.5Gi", "1e3", "0.1", "-1", "2E", "9223372036854775807", "+.5k", "1n")
    return Target([text.encode() for text in texts], feed, is_json=False)


def api_bodies() -> Target:
    """Policies as they are put through the API: written, or refused; never an error of the server."""
    directory = tempfile.TemporaryDirectory()
    token_file = Path(directory.name) / "token"
    token_file.write_text(TOKEN)
    loop = asyncio.new_event_loop()
    # One scene and one app, since FastAPI remembers the routes of every app that there ever was.
    scene = loop.run_until_complete(make_busy_scene(token_file))
    client = _client(scene)
    taken = 0

    def feed(data: bytes) -> None:
        nonlocal taken
        # The directory lives as long as what reads the token in it.
        assert directory.name
        if taken % OBJECTS == 0:
            scene.store = InMemoryStore()
            scene.policy_objects = PolicyObjects()
            scene.announced.clear()
        taken += 1
        answered = loop.run_until_complete(client.put(POLICY, content=data))
        assert answered.status_code in (200, 400, 413, 422), f"{answered.status_code} {answered.text}"
        answered.json()

    examples = [
        {"mode": "resize", "eviction-ranking": "never", "resources": "cpu"},
        {"cpu-min": "100m", "memory-max.app": "2Gi", "headroom-factor": 1.5},
    ]
    return Target([json.dumps(one).encode() for one in examples], feed)


def prometheus_answers() -> Target:
    """Answers to range and instant queries: samples on the grid, or an error."""
    settings = PrometheusSettings("http://127.0.0.1")
    matrices, vectors = MatrixDecoder(settings.labels), NodeLoadDecoder("node")
    times = np.arange(FIRST, LAST + 1, STEP)
    options = CounterReadingOptions(STEP, cores=4.0)

    def feed(data: bytes) -> None:
        try:
            vectors.decode(data)
        except (BadInputError, UnavailableError):
            pass
        try:
            matrix = matrices.decode(data, FIRST, LAST, STEP)
        except (BadInputError, UnavailableError):
            return
        block, _ = compute_usage(UsageAnswers(matrix, matrix, matrix), times, EarlierCounters(), options, set())
        assert not (block.cpu_demand_millicores < 0).any()
        assert len(block.keys) == len(block.cpu_demand_millicores) == len(block.memory_bytes)

    names = {"namespace": "shop", "pod": "web-1", "container": "app", "id": "/kubepods/x", "node": "n1"}
    rows = [
        {
            "metric": names | {"pod": f"web-{number}"},
            "values": [[at, str(at - FIRST + number)] for at in times.tolist()],
        }
        for number in range(3)
    ]
    vector = [{"metric": {"node": "n1", "instance": "10.0.0.1:9100"}, "value": [FIRST, "1.5"]}]
    return Target([_answer("matrix", rows), _answer("vector", vector)], feed, kept_bytes=1500)


def watch_lines() -> Target:
    """Lines of watches of all kinds, read by one cluster; unreadable objects are listed separately."""
    decoders = {StreamDecoder(kind.shape).kind: (kind, StreamDecoder(kind.shape)) for kind in ALL_KINDS}
    documents = [
        make_pod_json(containers=[make_container_json(**JVM)]),
        make_node_json(),
        make_deployment_json(),
        make_replica_set_json(),
        make_budget_json(),
        make_autoscaler_json(),
        make_limit_range_json({"type": "Container", "max": {"cpu": "2"}}),
        make_namespace_json(),
    ]
    state: dict[str, Any] = {"cache": ClusterCache(), "taken": 0}

    def feed(data: bytes) -> None:
        state["taken"] += 1
        if state["taken"] % OBJECTS == 0:
            state["cache"] = ClusterCache()
        cache: ClusterCache = state["cache"]
        # The watch is that of the object's kind, if it has one.
        kind, decoder = next((decoders[name] for name in decoders if f'"{name}"'.encode() in data), decoders["Pod"])
        try:
            event = decoder.decode_event(data)
        except BadInputError:
            return
        match event:
            case ChangedEvent(item, version):
                cache.get_store(kind).put(item, version)
            case DeletedEvent(item, version) if not isinstance(item, Unreadable):
                cache.get_store(kind).drop((item.metadata.namespace or "", item.metadata.name), version)
            case BookmarkEvent() | WatchError() | DeletedEvent():
                pass
        cache.snapshot()

    lines = [{"type": "MODIFIED", "object": document} for document in documents]
    lines += [{"type": "DELETED", "object": documents[0]}]
    lines += [{"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}]
    lines += [{"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "12"}}}]
    return Target([json.dumps(line).encode() for line in lines], feed)


TARGETS: Mapping[str, Callable[[], Target]] = {
    "reviews": reviews,
    "annotations": annotations,
    "quantities": quantities,
    "api-bodies": api_bodies,
    "prometheus-answers": prometheus_answers,
    "watch-lines": watch_lines,
}


def _client(scene: ApiScene) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(scene.app()),
        base_url="http://cruise",
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
    )


def _answer(kind: str, rows: object) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": rows}}).encode()


def _strings(data: bytes) -> dict[str, str]:
    """Return annotations from a document, or from any other text."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict):
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in document.items()}
    text = data.decode("utf-8", "replace")
    name = f"cruise.io/{text[: text.find('=')]}" if "=" in text else "cruise.io/original-resources"
    return {name: text[text.find("=") + 1 :].strip(string.whitespace)}

"""Decoding of kubelet metrics, compared with the client library, and of other text."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from cruise.adapters.kubelets.readings import parse_kubelet_metrics
from cruise.adapters.prometheus.queries import SeriesLabelValues
from cruise.errors import BadInputError

CPU, WAITING = "container_cpu_usage_seconds_total", "container_pressure_cpu_waiting_seconds_total"
MEMORY = "container_memory_working_set_bytes"
FAMILIES = (CPU, WAITING, MEMORY)

names = st.sampled_from(["app", "", "POD", "pröxy", 'a"b', "c\\d", "e\nf", "# TYPE x counter", "}", "a{b,c=d} 1"])
numbers = st.one_of(st.floats(), st.integers(0, 2**40).map(float))


@st.composite
def labels(draw: st.DrawFn) -> dict[str, str]:
    found = {key: draw(names) for key in ("container", "id", "image", "namespace", "pod")}
    return {key: found[key] for key in draw(st.permutations(sorted(found)))}


@st.composite
def texts(draw: st.DrawFn) -> str:
    groups = draw(st.lists(labels(), max_size=5, unique_by=lambda one: tuple(sorted(one.items()))))
    families = draw(st.permutations(["container_memory_rss", *FAMILIES]))
    return "".join(family_text(family, [(one, draw(numbers), draw(times)) for one in groups]) for family in families)


times = st.one_of(st.none(), st.integers(1, 2**41))


def family_text(name: str, series: list[tuple[dict[str, str], float, int | None]]) -> str:
    kind = "gauge" if name == MEMORY else "counter"
    lines = [f"# HELP {name} What it is, with a }} and a \\n.\n# TYPE {name} {kind}\n"]
    for one, value, taken_ms in series:
        cpu = {"cpu": "total"} if name == CPU else {}
        words = ",".join(f'{key}="{escaped(text)}"' for key, text in {**one, **cpu}.items())
        number = {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, repr(value).replace("nan", "NaN"))
        lines.append(f"{name}{{{words}}} {number}{'' if taken_ms is None else f' {taken_ms}'}\n")
    return "".join(lines)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def as_the_library_reads(text: str) -> dict[str, dict[tuple[str, ...], list[float]]]:
    found: dict[str, dict[tuple[str, ...], list[float]]] = {name: {} for name in FAMILIES}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = tuple(sample.labels.get(part, "") for part in ("namespace", "pod", "container", "id"))
            if sample.name in found and all(key[:3]) and key[2] != "POD" and 0 <= sample.value < math.inf:
                found[sample.name].setdefault(key, []).append(sample.value)
    return found


@given(texts())
def test_it_reads_what_the_library_reads(text):
    expected = as_the_library_reads(text)
    if any(len(values) > 1 for family in expected.values() for values in family.values()):
        with pytest.raises(BadInputError, match="twice"):
            parse_kubelet_metrics(text.encode(), "n1")
        return
    if not any(expected.values()):
        with pytest.raises(BadInputError, match="no usage"):
            parse_kubelet_metrics(text.encode(), "n1")
        return
    figures = parse_kubelet_metrics(text.encode(), "n1")
    columns = (figures.cpu_seconds, figures.cpu_waiting_seconds, figures.memory_bytes)
    for name, column in zip(FAMILIES, columns, strict=True):
        seen = {
            (one.namespace, one.pod, one.container, one.id): [value]
            for one, value in zip(figures.series, column.tolist(), strict=True)
            if not math.isnan(value)
        }
        assert seen == expected[name]
    assert {one.node for one in figures.series} == {"n1"}


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_else(body):
    with pytest.raises(BadInputError):
        parse_kubelet_metrics(body, "n1")


@given(texts(), st.integers(0, 10_000), st.binary(max_size=20))
def test_no_damage_raises_anything_else(text, place, damage):
    body = text.encode()
    try:
        parse_kubelet_metrics(body[: place % (len(body) + 1)] + damage, "n1")
    except BadInputError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<!DOCTYPE html><html></html>",
        b'{"kind":"Status","status":"Failure"}',
        b"404 page not found\n",
        b"# TYPE container_cpu_usage_seconds_total counter\ncontainer_cpu_usage_seconds_total{} lots\n",
        b"# TYPE container_cpu_usage_seconds_total counter\nsomething_else 1\n",
        b'# TYPE container_cpu_usage_seconds_total counter\ncontainer_cpu_usage_seconds_total{id="/"} 1 ' + b"9" * 400,
    ],
)
def test_rejects_other_text(body):
    with pytest.raises(BadInputError, match="the answer "):
        parse_kubelet_metrics(body, "n1")


def test_the_resource_metrics_endpoint_has_start_times_and_node_usage():
    labels = 'container="app",namespace="shop",pod="web-1"'
    body = f"""# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{{{labels}}} 12.5 1700000000000
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{{{labels}}} 1.048576e+06 1700000000000
# TYPE container_start_time_seconds gauge
container_start_time_seconds{{{labels}}} 1.69999e+09
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 99.5 1700000001000
"""
    figures = parse_kubelet_metrics(body.encode(), "n1")
    assert figures.series == (
        SeriesLabelValues("shop", "web-1", "app", "1699990000.000", "n1"),
        SeriesLabelValues("", "", "", "/", "n1"),
    )
    np.testing.assert_array_equal(figures.cpu_seconds, [12.5, 99.5])
    np.testing.assert_array_equal(figures.memory_bytes, [2**20, np.nan])
    np.testing.assert_array_equal(figures.measured_at, [1.7e9, 1.7e9 + 1])

"""`cruise export` names containers of the template, and none that were injected into its pods."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import (
    Json,
    make_container_json,
    make_list_json,
    make_node_json,
    make_pod_json,
    make_replica_set_json,
    make_usage_item_json,
    make_usage_json,
    make_workload_json,
)
from tests.cli.commands.test_export import export, template

FORMATS = ("patches", "kustomize", "helm", "pull-request", "json")
APP = make_container_json("app", "1", "1Gi", memory_limit="2Gi")
MESH = make_container_json("mesh-proxy", "500m", "512Mi", memory_limit="1Gi")
AGENT = make_container_json("log-agent", "500m", "512Mi", restartPolicy="Always")


def written(directory: Path, web: Json, *pods: tuple[list[Json], list[Json]]) -> list[str]:
    """A Deployment and its pods, each with its containers and init containers."""
    cluster = make_list_json(
        make_node_json(cpu="32"),
        make_workload_json("Deployment", "web", template=web, replicas=len(pods)),
        make_replica_set_json("web-7d9f8b6c5d"),
        *[
            make_pod_json(f"web-7d9f8b6c5d-{at}", containers=main, init_containers=init)
            for at, (main, init) in enumerate(pods)
        ],
    )
    items = [
        make_usage_item_json(None, "shop", "Deployment/web", name, cpu_peak=100, memory_peak=100 << 20)
        for name in sorted({one["name"] for main, init in pods for one in (*main, *init)})
    ]
    (directory / "cluster.json").write_text(json.dumps(cluster))
    (directory / "usage.json").write_text(json.dumps(make_usage_json(*items)))
    return ["--snapshot", str(directory / "cluster.json"), "--usage", str(directory / "usage.json")]


def named(spec: Json) -> set[str]:
    return {one["name"] for field in ("containers", "initContainers") for one in spec.get(field, ())}


def report(capsys: pytest.CaptureFixture[str], options: list[str]) -> Any:
    return json.loads(export(capsys, *options, "-f", "json"))


@pytest.mark.parametrize(
    ("main", "init", "injected"),
    [
        ([APP, MESH], [], ["mesh-proxy"]),
        ([APP], [AGENT], ["log-agent"]),
        ([MESH, APP], [AGENT], ["log-agent", "mesh-proxy"]),
        ([APP], [make_container_json("setup", "2", "2Gi")], ["setup"]),
    ],
)
def test_injected_containers_are_in_no_form(capsys, tmp_path, main, init, injected):
    # Something has been injected into one of the pods alone: it was there before the injector was.
    options = written(tmp_path, template(APP), (main, init), ([APP], []))
    [found] = report(capsys, options)["workloads"]
    assert found["injected"] == injected
    assert [one["container"] for one in found["containers"]] == ["app"]
    assert found["freed"] == {"cpuMillicores": 2 * 900, "memoryBytes": 2 * (1024 - 100) << 20}
    patch = yaml.safe_load(export(capsys, *options, "-f", "patches"))
    component = yaml.safe_load(export(capsys, *options, "-f", "kustomize"))
    for one in (patch, found["patch"], yaml.safe_load(component["patches"][0]["patch"])):
        assert named(one["spec"]["template"]["spec"]) == {"app"}
    # One container is the whole of the template.
    assert yaml.safe_load(export(capsys, *options, "-f", "helm"))["resources"]["requests"]["cpu"] == "100m"
    for form in ("table", "pull-request"):
        text = export(capsys, *options, "-f", form)
        for name in injected:
            assert text.count(name) == 1, form


def test_containers_that_are_injected_into_every_pod_are_in_no_form(capsys, tmp_path):
    options = written(tmp_path, template(APP), ([APP, MESH], [AGENT]), ([MESH, APP], [AGENT]))
    [found] = report(capsys, options)["workloads"]
    assert [one["container"] for one in found["containers"]] == ["app"]
    patch = yaml.safe_load(export(capsys, *options, "-f", "patches"))
    component = yaml.safe_load(export(capsys, *options, "-f", "kustomize"))
    for one in (patch, found["patch"], yaml.safe_load(component["patches"][0]["patch"])):
        assert named(one["spec"]["template"]["spec"]) == {"app"}
    assert found["freed"] == {"cpuMillicores": 2 * 900, "memoryBytes": 2 * (1024 - 100) << 20}
    assert found["injected"] == ["log-agent", "mesh-proxy"]


def test_a_container_that_moved_to_the_init_containers_is_not_the_templates(capsys, tmp_path):
    # Istio takes a main container called istio-proxy for settings of the sidecar that it injects.
    main = make_container_json("log-agent", "100m", "64Mi")
    options = written(tmp_path, template(APP, main), ([APP], [AGENT]))
    [found] = report(capsys, options)["workloads"]
    assert (found["injected"], named(found["patch"]["spec"]["template"]["spec"])) == (["log-agent"], {"app"})
    # Of the two that the template has, one alone is known: its values go by its name.
    assert set(yaml.safe_load(export(capsys, *options, "-f", "helm"))) == {"app"}


def test_pods_of_older_revisions_have_other_containers(capsys, tmp_path):
    old = make_container_json("old", "1", "1Gi", memory_limit="2Gi")
    options = written(tmp_path, template(APP), ([old], []), ([old, APP], []))
    [found] = report(capsys, options)["workloads"]
    assert [one["container"] for one in found["containers"]] == ["app"]
    options = written(tmp_path, template(APP), ([old], []), ([old], []))
    none = report(capsys, options)
    assert none["workloads"] == []
    assert [(one["workload"], one["reason"]) for one in none["leftAlone"]] == [("Deployment/web", "no-statistics")]


def test_containers_are_joined_by_name_whatever_their_order(capsys, tmp_path):
    side = make_container_json("old", "2", "2Gi", memory_limit="4Gi")
    options = written(tmp_path, template(APP, side), ([APP, side], []), ([side, APP], []))
    [found] = report(capsys, options)["workloads"]
    assert {one["container"]: one["before"]["requests"]["cpu"] for one in found["containers"]} == {
        "app": "1",
        "old": "2",
    }


def test_a_container_of_the_template_that_states_nothing_is_the_templates(capsys, tmp_path):
    bare = {"name": "old", "image": "registry.example/old:1"}
    running = make_container_json("old", "1", "1Gi", memory_limit="2Gi")
    options = written(tmp_path, template(APP, bare), ([APP, running], []))
    [found] = report(capsys, options)["workloads"]
    assert (found["injected"], [one["container"] for one in found["containers"]]) == ([], ["app", "old"])


@pytest.mark.parametrize(
    ("kind", "api_version"),
    [
        ("StatefulSet", "apps.kruise.io/v1beta1"),
        ("DaemonSet", "apps.kruise.io/v1alpha1"),
        ("CloneSet", "apps.kruise.io/v1alpha1"),
        ("Rollout", "argoproj.io/v1alpha1"),
    ],
)
def test_custom_resources_are_left_out_with_the_reason(capsys, tmp_path, kind, api_version):
    # In a custom resource a strategic merge patch is a merge patch: it would replace the whole list of containers.
    options = written(tmp_path, template(APP), ([APP], []))
    cluster = json.loads((tmp_path / "cluster.json").read_text())
    pod = next(one for one in cluster["items"] if one["kind"] == "Pod")
    owner = {"apiVersion": api_version, "kind": kind, "name": "web", "uid": "u", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    workload = next(one for one in cluster["items"] if one["kind"] == "Deployment")
    workload |= {"apiVersion": api_version, "kind": kind}
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    items = json.loads((tmp_path / "usage.json").read_text())
    for one in items["items"]:
        one["workload"] = f"{kind}/web"
    (tmp_path / "usage.json").write_text(json.dumps(items))
    found = report(capsys, options)
    assert found["workloads"] == []
    [left] = found["leftAlone"]
    assert (left["workload"], left["reason"]) == (f"{kind}/web", "custom-resource")
    assert kind in left["message"] and "patch" in left["message"]
    assert export(capsys, *options, "-f", "patches") == ""

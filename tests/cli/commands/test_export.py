"""`cruise export`: its output, that a second export changes nothing, and every invalid input."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from cruise.cli import main
from tests.builders import (
    LONG_AGO,
    Json,
    make_container_json,
    make_list_json,
    make_node_json,
    make_pod_json,
    make_usage_item_json,
    make_usage_json,
    make_workload_json,
    stamp,
)

WEB = [
    make_container_json("app", "2", "1Gi", cpu_limit="4", memory_limit="2Gi"),
    make_container_json("logs", "100m", "64Mi"),
]
PROXY = make_container_json("proxy", "500m", "256Mi", restartPolicy="Always")


def template(*containers: Json, init: tuple[Json, ...] = ()) -> Json:
    return {"spec": {"containers": list(containers)} | ({"initContainers": list(init)} if init else {})}


def workloads() -> dict[str, Json]:
    """A workload of each kind that has a template, and one that an operator keeps."""
    job = {"spec": {"template": template(make_container_json(cpu="1", memory="1Gi"))}}
    return {
        "web": make_workload_json("Deployment", "web", template=template(*WEB, init=(PROXY,)), replicas=2),
        "db": make_workload_json(
            "StatefulSet", "db", "data", template=template(make_container_json(cpu="1")), replicas=2
        ),
        "nightly": make_workload_json("CronJob", "nightly", "data", jobTemplate=job),
        "kept": make_workload_json("Deployment", "kept", owner="Engine/main", template=template(make_container_json())),
    }


def pods_of(objects: dict[str, Json]) -> list[Json]:
    """The pods that the workloads' templates give."""

    def pod(name: str, namespace: str, owner: str, template: Json) -> Json:
        spec = template["spec"]
        labels = {"app.kubernetes.io/instance": "prod"}
        return make_pod_json(name, namespace, "n1", spec["containers"], spec.get("initContainers"), owner, labels)

    web, kept = objects["web"]["spec"]["template"], objects["kept"]["spec"]["template"]
    db, nightly = objects["db"]["spec"]["template"], objects["nightly"]["spec"]["jobTemplate"]["spec"]["template"]
    return [
        pod("web-7d9f8b6c5d-x2x4z", "shop", "ReplicaSet/web-7d9f8b6c5d", web),
        pod("web-7d9f8b6c5d-b9k2d", "shop", "ReplicaSet/web-7d9f8b6c5d", web),
        pod("kept-1-1", "shop", "ReplicaSet/kept-1", kept),
        pod("db-0", "data", "StatefulSet/db", db),
        pod("db-1", "data", "StatefulSet/db", db),
        pod("nightly-1-1", "data", "Job/nightly-1", nightly),
        pod("young-0", "data", "StatefulSet/young", template(make_container_json())),
    ]


def usage() -> Json:
    items = [
        make_usage_item_json(
            None, "shop", "Deployment/web", name, cpu_peak=peak, memory_peak=memory << 20, memory_7d_max=memory << 20
        )
        for name, peak, memory in (("app", 400, 300), ("logs", 100, 64), ("proxy", 60, 50))
    ]
    items += [
        make_usage_item_json(name, "data", "StatefulSet/db", cpu_peak=peak)
        for name, peak in (("db-0", 200), ("db-1", 700))
    ]
    items.append(make_usage_item_json("nightly-1-1", "data", "CronJob/nightly"))
    items.append(make_usage_item_json(None, "shop", "Deployment/kept"))
    # No limit falls on a shorter history, or on one of unknown length.
    return make_usage_json(*(item | {"historySince": stamp(LONG_AGO)} for item in items))


def write(directory: Path, objects: dict[str, Json]) -> list[str]:
    """Write both files; returns the options that name them."""
    owned = [
        make_workload_json("ReplicaSet", "web-7d9f8b6c5d", owner="Deployment/web"),
        make_workload_json("ReplicaSet", "kept-1", owner="Deployment/kept"),
        make_workload_json("Job", "nightly-1", "data", owner="CronJob/nightly"),
        make_workload_json("StatefulSet", "young", "data", template=template(make_container_json())),
    ]
    cluster = make_list_json(make_node_json(cpu="32"), *objects.values(), *owned, *pods_of(objects))
    (directory / "cluster.json").write_text(json.dumps(cluster))
    (directory / "usage.json").write_text(json.dumps(usage()))
    return ["--snapshot", str(directory / "cluster.json"), "--usage", str(directory / "usage.json")]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", "80")
    return write(tmp_path, workloads())


def export(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["export", *arguments]) == 0
    return str(capsys.readouterr().out)


def error_line(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["export", *arguments]) == 2
    out, err = map(str, capsys.readouterr())
    assert out == ""
    assert err.count("\n") == 1
    return err.removeprefix("cruise: ").rstrip("\n")


def merged(object_: Any, patch: Any) -> Any:
    """What strategic merge makes of an object: lists of containers by name, null takes out."""
    if isinstance(patch, dict) and isinstance(object_, dict):
        whole = deepcopy(object_)
        for key, value in patch.items():
            if value is None:
                whole.pop(key, None)
            else:
                whole[key] = merged(whole.get(key), value)
        return whole
    if isinstance(patch, list) and isinstance(object_, list):
        by_name = {one["name"]: one for one in patch}
        return [merged(one, by_name.get(one["name"], {})) for one in object_]
    return patch


def test_a_patch_states_what_changes_and_no_more(capsys, files):
    patches = {one["metadata"]["name"]: one for one in yaml.safe_load_all(export(capsys, *files, "-f", "patches"))}
    assert set(patches) == {"web", "db", "nightly"}
    web = patches["web"]["spec"]["template"]["spec"]
    assert web["containers"] == [
        {
            "name": "app",
            "resources": {"requests": {"cpu": "400m", "memory": "300Mi"}, "limits": {"memory": "600Mi", "cpu": None}},
        },
    ]
    assert [one["name"] for one in web["initContainers"]] == ["proxy"]
    assert (patches["web"]["apiVersion"], patches["nightly"]["apiVersion"]) == ("apps/v1", "batch/v1")
    assert "template" in patches["nightly"]["spec"]["jobTemplate"]["spec"]
    [db] = patches["db"]["spec"]["template"]["spec"]["containers"]
    assert db["resources"]["requests"]["cpu"] == "700m", "one template is for the pod that needs most"


def test_once_a_template_states_them_nothing_is_left_to_do(capsys, files, tmp_path):
    objects = workloads()
    for patch in yaml.safe_load_all(export(capsys, *files, "-f", "patches")):
        objects[patch["metadata"]["name"]] = merged(objects[patch["metadata"]["name"]], patch)
    again = json.loads(export(capsys, *write(tmp_path, objects), "--format", "json"))
    assert again["workloads"] == []
    assert {one["workload"]: one["reason"] for one in again["leftAlone"]} == {
        "Deployment/web": "no-change-needed",
        "StatefulSet/db": "no-change-needed",
        "CronJob/nightly": "no-change-needed",
        "Deployment/kept": "generated",
        "StatefulSet/young": "no-statistics",
    }


def test_what_cruise_wrote_on_pods_does_not_hide_what_a_template_states(capsys, tmp_path):
    objects = workloads()
    options = write(tmp_path, objects)
    before = json.loads(export(capsys, *options, "--format", "json"))["workloads"]
    cluster = json.loads((tmp_path / "cluster.json").read_text())
    for one in cluster["items"]:
        if one["kind"] == "Pod" and one["metadata"]["name"].startswith("web"):
            one["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "400m", "memory": "300Mi"}}
            original = {"app": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "2Gi"}}}
            one["metadata"]["annotations"] = {"cruise.io/original-resources": json.dumps(original)}
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    assert json.loads(export(capsys, *options, "--format", "json"))["workloads"] == before


def test_a_directory_gets_all_files_for_git(capsys, files, tmp_path):
    out = tmp_path / "out"
    assert export(capsys, *files, "-o", str(out)) == ""
    found = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert found == [
        "PULL_REQUEST.md",
        "data/cronjob-nightly.yaml",
        "data/kustomization.yaml",
        "data/statefulset-db.yaml",
        "data/values.yaml",
        "shop/deployment-web.yaml",
        "shop/kustomization.yaml",
        "shop/values.yaml",
    ]
    component = yaml.safe_load((out / "shop/kustomization.yaml").read_text())
    assert component["patches"] == [{"path": "deployment-web.yaml", "target": {"kind": "Deployment", "name": "web"}}]
    values = yaml.safe_load((out / "shop/values.yaml").read_text().split("# container logs")[0])
    assert values["app"]["resources"]["limits"] == {"memory": "600Mi", "cpu": None}
    assert "release prod" in (out / "shop/values.yaml").read_text()


def test_a_pull_request_has_the_evidence(capsys, files):
    text = export(capsys, *files, "--format", "pull-request")
    assert text.startswith("Set the resources of 3 workloads by their measured usage\n")
    assert "| `app` | CPU | 2,000m → **400m** | 4,000m → **–** | 50m | 400m |  |" in text
    assert "| `app` | memory | 1,024Mi → **300Mi** | 2,048Mi → **600Mi** | 64Mi | 300Mi | 300Mi |" in text
    assert "2 pods, history since 2025-12-01: 4.08 cores less" in text
    assert "- 1: its template is generated by Engine/main: change it there" in text


def test_what_users_wrote_is_text_in_markdown_and_yaml(capsys, tmp_path):
    objects = workloads()
    objects["kept"] = make_workload_json(
        "Deployment", "kept", owner="Engine/<b>[x](y)", template=template(make_container_json())
    )
    options = write(tmp_path, objects)
    assert "generated by Engine/&lt;b>\\[x\\](y)" in export(capsys, *options, "--format", "pull-request")
    cluster = (tmp_path / "cluster.json").read_text().replace('": "prod"', '": "a\\nkind: Secret"')
    (tmp_path / "cluster.json").write_text(cluster)
    assert "\nkind" not in export(capsys, *options, "--format", "helm")


@pytest.mark.parametrize("name", ["../../etc", "a/b", "A", "-x"])
def test_no_name_leads_out_of_the_directory(capsys, tmp_path, name):
    objects = workloads()
    options = write(tmp_path, objects)
    cluster = json.loads((tmp_path / "cluster.json").read_text())
    for one in cluster["items"]:
        if one["metadata"].get("namespace") == "data":
            one["metadata"]["namespace"] = name
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    usage = json.loads((tmp_path / "usage.json").read_text().replace('"data"', json.dumps(name)))
    (tmp_path / "usage.json").write_text(json.dumps(usage))
    out = tmp_path / "deep" / "out"
    export(capsys, *options, "-o", str(out))
    assert sorted(path.name for path in out.iterdir()) == ["PULL_REQUEST.md", "shop"]
    left = json.loads(export(capsys, *options, "--format", "json"))["leftAlone"]
    assert {one["reason"] for one in left if one["namespace"] == name} >= {"unsupported-name"}


def test_what_is_named_alone_is_exported(capsys, files):
    def names(*arguments: str) -> list[str]:
        found = json.loads(export(capsys, *files, *arguments, "--format", "json"))
        return [one["workload"] for one in found["workloads"]]

    assert names("-n", "data") == ["CronJob/nightly", "StatefulSet/db"]
    assert names("shop/web") == ["Deployment/web"]
    assert names("-n", "data", "-n", "shop") == ["CronJob/nightly", "StatefulSet/db", "Deployment/web"]


def test_a_kustomization_of_one_namespace_fits_into_one_file(capsys, files):
    [patch] = yaml.safe_load(export(capsys, *files, "-n", "shop", "-f", "kustomize", "-o", "-"))["patches"]
    assert yaml.safe_load(patch["patch"])["metadata"]["name"] == "web"
    said = error_line(capsys, *files, "-f", "kustomize")
    assert said == (
        "a kustomization is for one namespace, and 2 have changes: add --namespace, e.g. data, or --output DIR"
    )


@pytest.mark.parametrize("columns", [80, 160])
def test_the_table_fits_its_terminal(capsys, files, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = export(capsys, *files)
    assert "Deployment/web" in text
    assert max(len(line) for line in text.splitlines()) <= columns


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["web"], '"web" is not NAMESPACE/NAME; write e.g. shop/web'),
        (["shop/wep"], "there is no workload shop/wep with pods; did you mean web or kept?"),
        (["-n", "shp"], "there are no pods in namespace shp; did you mean shop?"),
        (
            ["-f", "table", "-o", "x"],
            "--format table is not for files: remove --output, or redirect standard output",
        ),
        (["-o", "/dev/null/x"], "--output: /dev/null/x/data cannot be created: Not a directory"),
        (["--price-cpu-core-hour", "inf"], "a price is a number, such as 0.0145"),
    ],
)
def test_wrong_input_is_one_line(capsys, files, arguments, expected):
    assert error_line(capsys, *files, *arguments) == expected


def test_where_nothing_changes_nothing_is_written(capsys, tmp_path):
    (tmp_path / "cluster.json").write_text(json.dumps(make_list_json(make_node_json(), make_pod_json(owner=None))))
    (tmp_path / "usage.json").write_text(json.dumps(make_usage_json(make_usage_item_json())))
    options = ["--snapshot", str(tmp_path / "cluster.json"), "--usage", str(tmp_path / "usage.json")]
    export(capsys, *options, "-o", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert "No template needs other resources." in export(capsys, *options)


def test_no_limit_falls_on_a_history_of_unknown_length(capsys, files):
    usage_file = Path(files[-1])
    document = json.loads(usage_file.read_text())
    for item in document["items"]:
        del item["historySince"]
    usage_file.write_text(json.dumps(document))
    # A limit that stays is not part of a patch.
    assert "memory: 600Mi" not in export(capsys, *files, "--format", "patches", "-n", "shop")


def vpa_json(name: str, **spec: Any) -> Json:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    metadata = {"namespace": "shop", "name": name}
    return {"kind": "VerticalPodAutoscaler", "metadata": metadata, "spec": {"targetRef": target, **spec}}


def test_vpas_become_policies(capsys, tmp_path: Path):
    rules = {"containerPolicies": [{"containerName": "logs", "mode": "Off"}]}
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(make_list_json(vpa_json("web", resourcePolicy=rules), vpa_json("api"))))
    policies = list(yaml.safe_load_all(export(capsys, "--policies", "--snapshot", str(path))))
    assert [one["metadata"]["name"] for one in policies] == ["deployment-api", "deployment-web"]
    assert policies[1]["spec"] == {
        "selector": {"kinds": ["Deployment"], "names": ["web"]},
        "mode": "resize",
        "containers": [{"name": "logs", "mode": "off"}],
    }
    export(capsys, "--policies", "--snapshot", str(path), "-o", str(tmp_path / "out"))
    text = (tmp_path / "out" / "shop" / "deployment-web.yaml").read_text()
    assert text.startswith("# From VerticalPodAutoscaler shop/web.\n")
    assert "mode: 'off'" in text


def test_policies_need_no_usage(capsys, tmp_path: Path):
    told = error_line(capsys, "--policies", "--usage", "usage.json", "--format", "json")
    assert "--policies reads no usage and has one format; remove --format and --usage" in told

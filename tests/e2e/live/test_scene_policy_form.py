"""The dashboard's policies of workloads on a real API server: whose right counts, and policies that Git owns."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.api import Api, ApiError, Json, wait_until
from tests.controlplane.binaries import programs
from tests.deploy.installing import SERVE, documents, grant_permissions, remove
from tests.e2e.live.custom_kinds import policy_objects
from tests.e2e.live.measured import MeasuredStage, measure
from tests.e2e.live.programs import RunningProgram
from tests.e2e.live.sizes import requests
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.test_scene_api import FAST, account, ask

KIND, CLUSTER_KIND = "rightsizingpolicies.cruise.io", "clusterrightsizingpolicies.cruise.io"
RBAC = "rbac.authorization.k8s.io"
LABEL = "from=git"


@pytest.fixture
def measured(stage: LiveStage) -> MeasuredStage:
    return measure(stage)


@pytest.fixture
def with_policies(measured: MeasuredStage) -> Iterator[Api]:
    """The kinds of policies, and the roles of API users; not the role by which cruise writes policies."""
    admin = measured.stage.admin
    for one in documents("rbac/api.yaml"):
        admin.apply(one)
    with policy_objects(admin):
        yield admin


def allow_policies(admin: Api, namespace: str, name: str, plural: str = "rightsizingpolicies") -> None:
    """Let an account write the policies of its namespace, as a role of a team does, or those of the cluster."""
    scope = "" if plural == "rightsizingpolicies" else "Cluster"
    metadata = {"name": f"{namespace}-{name}"} if scope else {"namespace": namespace, "name": f"{name}-policies"}
    verbs = ["create", "patch", "delete", "get", "list", "update"]
    rules = [{"apiGroups": ["cruise.io"], "resources": [plural], "verbs": verbs}]
    admin.create({"apiVersion": f"{RBAC}/v1", "kind": f"{scope}Role", "metadata": metadata, "rules": rules})
    reference = {"apiGroup": RBAC, "kind": f"{scope}Role", "name": metadata["name"]}
    subjects = [{"kind": "ServiceAccount", "namespace": namespace, "name": name}]
    binding = {"apiVersion": f"{RBAC}/v1", "kind": f"{scope}RoleBinding", "metadata": metadata, "roleRef": reference}
    admin.create({**binding, "subjects": subjects})


def apply_from_git(stage: LiveStage, directory: Path, *policies: Json) -> str:
    """What `kubectl apply --prune` says of a checkout that has these policies."""
    directory.mkdir(exist_ok=True)
    for old in directory.iterdir():
        old.unlink()
    for one in policies:
        one["metadata"]["labels"] = {"from": "git"}
        (directory / f"{one['metadata']['name']}.yaml").write_text(yaml.safe_dump(one))
    command: list[Any] = [programs() / "kubectl", "--kubeconfig", stage.plane.kubeconfig(), "apply"]
    command += ["--namespace", stage.namespace, "--filename", directory, "--prune", "--selector", LABEL]
    for kind in ("RightsizingPolicy", "ClusterRightsizingPolicy"):
        command += ["--prune-allowlist", f"cruise.io/v1alpha1/{kind}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def specs(admin: Api, namespace: str | None, kind: str = KIND) -> dict[str, Json]:
    return {one["metadata"]["name"]: one["spec"] for one in admin.items(kind, namespace)}


def put(running: RunningProgram, namespace: str, name: str, token: str, **settings: str) -> tuple[int, Json]:
    return ask(running, "PUT", f"/api/v1/policies/{namespace}/Deployment/{name}", settings, token=token)


def test_a_policy_is_written_for_authorized_callers_and_never_over_one_from_git(
    measured: MeasuredStage, with_policies: Api, tmp_path: Path
):
    stage, admin, own = measured.stage, with_policies, measured.stage.namespace
    reader = account(admin, own, "reader", ["cruise-admin", "view"])
    boss = account(admin, own, "boss", ["cruise-admin", "view"])
    allow_policies(admin, own, "boss")
    rights = documents("rbac/policies.yaml")
    git = tmp_path / "git"
    with stage.serving("resize", api_authentication="kubernetes", http_tls="on", **FAST) as running:
        wait_until(lambda: ask(running, "GET", "/api/v1/nodes", token=boss)[0] == 200, "a pass was made")
        # The default installation: the form shows what to commit.
        code, said = put(running, own, "web", boss, mode="off")
        assert (code, "rbac.writePolicies" in said["error"]) == (403, True)
        manifest = ask(running, "GET", f"/api/v1/policies/{own}/Deployment/web", token=boss)[1]
        assert "rbac.writePolicies" in manifest["notWritable"] and specs(admin, own) == {}
        for one in rights:
            admin.apply(one)
        try:
            # The caller's own right counts, not cruise's.
            wait_until(lambda: put(running, own, "web", boss, mode="off")[0] == 200, "cruise got its role")
            code, said = put(running, own, "web", reader, mode="full")
            assert (code, "may not create rightsizingpolicies" in said["error"]) == (403, True)
            selector = {"kinds": ["Deployment"], "names": ["web"]}
            assert specs(admin, own) == {"deployment-web": {"selector": selector, "mode": "off"}}
            # What is sent replaces what was sent before.
            assert put(running, own, "web", boss, **{"cpu-max": "300m"})[0] == 200
            stated = {"selector": selector, "maxAllowed": {"cpu": "300m"}}
            assert specs(admin, own) == {"deployment-web": stated}
            code, said = put(running, own, "web", boss, **{"cpu-min": "1m"})
            assert (code, "spec.minAllowed" in said["error"] or "cpu-min" in said["error"]) == (422, True)
            wait_until(lambda: all(requests(one).cpu <= 300 for one in stage.pods("web")), "the policy is obeyed")
            # Git takes over another workload's policy, and prunes only what it applied.
            assert put(running, own, "db", boss, mode="off")[0] == 200
            db = admin.read(KIND, own, "deployment-db")
            from_git = {**{key: db[key] for key in ("apiVersion", "kind")}, "spec": {**db["spec"], "mode": "observe"}}
            from_git["metadata"] = {"namespace": own, "name": "deployment-db"}
            apply_from_git(stage, git, from_git)
            code, said = put(running, own, "db", boss, mode="full")
            assert (code, "managed by kubectl apply" in said["error"]) == (409, True)
            assert ask(running, "DELETE", f"/api/v1/policies/{own}/Deployment/db", token=boss)[0] == 409
            assert specs(admin, own)["deployment-db"]["mode"] == "observe"
            assert "unchanged" in apply_from_git(stage, git, from_git)
            other = {**from_git, "metadata": {"namespace": own, "name": "all"}, "spec": {"mode": "resize"}}
            assert "deployment-db pruned" in apply_from_git(stage, git, other)
            assert specs(admin, own) == {"deployment-web": stated, "all": {"mode": "resize"}}
            # A stolen token of cruise changes no policy of others, whatever its role permits.
            serve = grant_permissions(admin, SERVE)
            with pytest.raises(ApiError, match="may not change policies of others"):
                serve.patch(KIND, own, "all", {"spec": {"mode": "off"}}, "merge")
            with pytest.raises(ApiError, match="may not change policies of others"):
                serve.delete(KIND, own, "all")
            lines = ask(running, "GET", "/api/v1/user-actions", token=boss)[1]["items"]
            name = f"system:serviceaccount:{own}:boss"
            assert {one["caller"] for one in lines if one["kind"] == "put-policy"} == {name}
            assert ask(running, "DELETE", f"/api/v1/policies/{own}/Deployment/web", token=boss)[0] == 204
            assert set(specs(admin, own)) == {"all"}
        finally:
            for one in rights:
                remove(admin, one)


def test_a_namespaces_policy_is_written_for_those_who_may_and_contradicts_git_in_its_status(
    measured: MeasuredStage, with_policies: Api, tmp_path: Path
):
    stage, admin, own = measured.stage, with_policies, measured.stage.namespace
    team = account(admin, own, "team", ["cruise-admin", "view"])
    allow_policies(admin, own, "team")
    platform = account(admin, own, "platform", ["cruise-admin", "view"])
    allow_policies(admin, own, "platform", "clusterrightsizingpolicies")
    path, name = f"/api/v1/policies/namespaces/{own}", f"namespace-{own}"
    written = {"selector": {"namespaces": [own]}, "maxAllowed": {"cpu": "300m"}}
    rights = documents("rbac/policies.yaml")
    for one in rights:
        admin.apply(one)
    try:
        with stage.serving("resize", api_authentication="kubernetes", http_tls="on", **FAST) as running:
            wait_until(lambda: ask(running, "GET", "/api/v1/nodes", token=platform)[0] == 200, "a pass was made")
            code, said = ask(running, "PUT", path, {"cpu-max": "300m"}, token=team)
            assert (code, "may not create clusterrightsizingpolicies" in said["error"]) == (403, True)
            assert ask(running, "PUT", path, {"cpu-max": "300m"}, token=platform)[0] == 200
            assert specs(admin, None, CLUSTER_KIND) == {name: written}
            wait_until(lambda: all(requests(one).cpu <= 300 for one in stage.pods("web")), "the policy is obeyed")
            [line] = ask(running, "GET", "/api/v1/user-actions", token=team)[1]["items"]
            assert (line["kind"], line["namespace"], line["workload"]) == ("put-policy", own, None)
            # Another policy for the same namespace, from Git: neither changes the other, and both name it.
            from_git = {"selector": {"namespaces": [own]}, "maxAllowed": {"cpu": "250m"}}
            head: Json = {"apiVersion": "cruise.io/v1alpha1", "kind": "ClusterRightsizingPolicy"}
            git = tmp_path / "git"
            apply_from_git(stage, git, {**head, "metadata": {"name": f"git-{own}"}, "spec": from_git})
            assert specs(admin, None, CLUSTER_KIND) == {name: written, f"git-{own}": from_git}

            def read_conflicts() -> dict[str, list[Json]]:
                found = {one["metadata"]["name"]: one.get("status", {}) for one in admin.items(CLUSTER_KIND)}
                return {one: status.get("conflicts") or [] for one, status in found.items()}

            wait_until(lambda: all(read_conflicts().values()), "both have a conflict")
            conflicts = read_conflicts()
            titles = {one: f"ClusterRightsizingPolicy {one}" for one in (name, f"git-{own}")}
            for policy, other in ((name, f"git-{own}"), (f"git-{own}", name)):
                [conflict] = conflicts[policy]
                assert (conflict["policy"], conflict["winner"]) == (titles[other], titles[f"git-{own}"])
                assert conflict["settings"] == ["cpu-max"]
            # Git prunes what it applied, and the form deletes what it wrote.
            of_team = {**head, "kind": "RightsizingPolicy", "metadata": {"namespace": own, "name": "team"}}
            assert f"git-{own} pruned" in apply_from_git(stage, git, {**of_team, "spec": {"mode": "resize"}})
            assert specs(admin, None, CLUSTER_KIND) == {name: written}
            wait_until(lambda: read_conflicts() == {name: []}, "the conflict is over")
            # Git takes over the form's own object: the form leaves it to Git.
            apply_from_git(stage, git, {**head, "metadata": {"name": name}, "spec": {**written, "mode": "observe"}})
            code, said = ask(running, "PUT", path, {"cpu-max": "1"}, token=platform)
            assert (code, "managed by kubectl apply" in said["error"]) == (409, True)
            assert ask(running, "DELETE", path, token=platform)[0] == 409
            serve = grant_permissions(admin, SERVE)
            admin.create({**head, "metadata": {"name": f"others-{own}"}, "spec": {"mode": "observe"}})
            with pytest.raises(ApiError, match="may not change policies of others"):
                serve.delete(CLUSTER_KIND, None, f"others-{own}")
            # The policy of all namespaces is another object.
            everywhere = "/api/v1/policies/namespaces"
            assert ask(running, "PUT", everywhere, {"headroom-factor": "1.5"}, token=platform)[0] == 200
            assert specs(admin, None, CLUSTER_KIND)["all-namespaces"] == {"headroomFactor": 1.5}
            assert ask(running, "DELETE", everywhere, token=platform)[0] == 204
            assert set(specs(admin, None, CLUSTER_KIND)) == {name, f"others-{own}"}
    finally:
        for one in rights:
            remove(admin, one)

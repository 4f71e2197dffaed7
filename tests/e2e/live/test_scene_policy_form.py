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

KIND = "rightsizingpolicies.cruise.io"
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


def allow_policies(admin: Api, namespace: str, name: str) -> None:
    """Let an account write the policies of its namespace, as a role of a team does."""
    metadata = {"namespace": namespace, "name": f"{name}-policies"}
    verbs = ["create", "patch", "delete", "get", "list", "update"]
    rules = [{"apiGroups": ["cruise.io"], "resources": ["rightsizingpolicies"], "verbs": verbs}]
    admin.create({"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules})
    reference = {"apiGroup": RBAC, "kind": "Role", "name": metadata["name"]}
    subjects = [{"kind": "ServiceAccount", "namespace": namespace, "name": name}]
    binding = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": metadata, "roleRef": reference}
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
    command += ["--prune-allowlist", "cruise.io/v1alpha1/RightsizingPolicy"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def specs(admin: Api, namespace: str) -> dict[str, Json]:
    return {one["metadata"]["name"]: one["spec"] for one in admin.items(KIND, namespace)}


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
            with pytest.raises(ApiError, match="may not change RightsizingPolicies of others"):
                serve.patch(KIND, own, "all", {"spec": {"mode": "off"}}, "merge")
            with pytest.raises(ApiError, match="may not change RightsizingPolicies of others"):
                serve.delete(KIND, own, "all")
            lines = ask(running, "GET", "/api/v1/user-actions", token=boss)[1]["items"]
            name = f"system:serviceaccount:{own}:boss"
            assert {one["caller"] for one in lines if one["kind"] == "put-policy"} == {name}
            assert ask(running, "DELETE", f"/api/v1/policies/{own}/Deployment/web", token=boss)[0] == 204
            assert set(specs(admin, own)) == {"all"}
        finally:
            for one in rights:
                remove(admin, one)

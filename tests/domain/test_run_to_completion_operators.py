"""Pods of two runs belong to one workload; pods of different steps and of permanent controllers do not."""

import random

import pytest

from cruise.domain.annotations import WORKLOAD
from cruise.domain.run_to_completion_operators import (
    LASTING_KINDS,
    OPERATORS,
    drop_run_suffix,
    find_workload_of_runs,
    parse_workload_name,
    runs_to_completion,
)
from cruise.kube_json.objects.owners import NO_OWNERS

ARGO = "workflows.argoproj.io/"


def argo(workflow: str, node: str, **labels: str):
    stated = {f"{ARGO}workflow": workflow} | {f"{ARGO}{key.replace('_', '-')}": value for key, value in labels.items()}
    return find_workload_of_runs(
        ("Workflow", workflow), stated, {f"{ARGO}node-name": f"{workflow}{node}"}, restarts=False
    )


def group(owner: tuple[str, str] | None, labels: dict[str, str], annotations: dict[str, str] | None = None):
    kind, name = owner or (None, None)
    found = NO_OWNERS.find_workload("shop", kind, name, labels, annotations or {}, restarts=False)
    return None if found is None else (found.kind, found.name)


@pytest.mark.parametrize(
    ("node", "step"),
    [
        ("", ""),
        (".train", ":train"),
        ("[0].train", ":train"),
        ("[12].fan-out(3:eu.west)", ":fan-out"),
        ('[0].fan-out(0:{"a":"f(x).y"})(1)', ":fan-out"),
        ("[0].build[1].test(0)", ":build.test"),
        (".a.b.c.d.e", ":c.d.e"),
        ("[0].odd((((", ":odd"),
    ],
)
def test_the_step_of_a_workflow_is_its_node_without_run_index_and_item(node: str, step: str):
    for run in ("nightly-1764300000", "nightly-x7k2q"):
        assert argo(run, node) == ("Workflow", f"nightly{step}")
        assert argo(run, node, cron_workflow="nightly") == ("CronWorkflow", f"nightly{step}")


@pytest.mark.parametrize(
    ("owner", "labels", "annotations", "found"),
    [
        (
            ("TaskRun", "build-run-x7k2q-compile"),
            {"tekton.dev/pipeline": "build", "tekton.dev/pipelineTask": "compile", "tekton.dev/task": "golang"},
            {},
            ("Pipeline", "build:compile"),
        ),
        # A PipelineRun with an embedded pipeline names that after itself.
        (
            ("TaskRun", "build-x7k2q-compile"),
            {
                "tekton.dev/pipeline": "build-x7k2q",
                "tekton.dev/pipelineRun": "build-x7k2q",
                "tekton.dev/pipelineTask": "compile",
            },
            {},
            ("Pipeline", "build:compile"),
        ),
        (("TaskRun", "lint-x7k2q"), {"tekton.dev/task": "lint"}, {}, ("Task", "lint")),
        (("TaskRun", "lint-x7k2q"), {}, {}, ("TaskRun", "lint")),
        (
            ("SparkApplication", "etl-1764300000000000000"),
            {"sparkoperator.k8s.io/app-name": "etl-1764300000000000000", "spark-role": "driver"},
            {},
            ("SparkApplication", "etl:driver"),
        ),
        (
            ("Pod", "etl-2ea432f1-driver"),
            {"sparkoperator.k8s.io/app-name": "etl-2ea432f1", "spark-role": "executor"},
            {},
            ("SparkApplication", "etl:executor"),
        ),
        (("Pod", "some-driver"), {}, {}, ("Pod", "some-driver")),
        (
            ("PyTorchJob", "bert-x7k2q"),
            {"training.kubeflow.org/job-name": "bert-x7k2q", "training.kubeflow.org/replica-type": "worker"},
            {},
            ("PyTorchJob", "bert:worker"),
        ),
        (
            ("RayCluster", "train-x7k2q"),
            {"ray.io/cluster": "train-x7k2q", "ray.io/group": "gpu"},
            {},
            ("RayCluster", "train:gpu"),
        ),
        (
            ("JobSet", "sim"),
            {"jobset.sigs.k8s.io/jobset-name": "sim", "jobset.sigs.k8s.io/replicatedjob-name": "leader"},
            {},
            ("JobSet", "sim:leader"),
        ),
        (
            ("EphemeralRunner", "arc-x7k2q-runner-2f9xz"),
            {"actions.github.com/scale-set-name": "arc"},
            {},
            ("AutoscalingRunnerSet", "arc"),
        ),
        (None, {"dag_id": "etl", "task_id": "load", "try_number": "1"}, {}, ("DAG", "etl:load")),
        (None, {"dag_id": "etl"}, {}, None),
        (
            None,
            {"job.runner.gitlab.com/pod": "p", "project.runner.gitlab.com/id": "7"},
            {"job.runner.gitlab.com/name": "test: [a, b]"},
            ("GitLabProject", "7:test-a-b"),
        ),
        (None, {}, {}, None),
        (None, {WORKLOAD.name: "report"}, {}, ("Workload", "report")),
        (None, {}, {WORKLOAD.name: "report"}, ("Workload", "report")),
        (None, {}, {WORKLOAD.name: "no name"}, None),
        (("Job", "import-x7k2q"), {WORKLOAD.name: "import"}, {}, ("Workload", "import")),
        (("Job", "import-x7k2q"), {}, {}, ("Job", "import-x7k2q")),
        (("Custom", "import-x7k2q"), {}, {}, ("Custom", "import")),
    ],
)
def test_what_lasts_beyond_a_run_is_the_workload(owner, labels, annotations, found):
    assert group(owner, labels, annotations) == found


def test_a_name_that_users_state_distinguishes_the_steps():
    steps = {
        group(("Workflow", run), {WORKLOAD.name: "etl"}, {f"{ARGO}node-name": f"{run}[0].{step}"})
        for run in ("a-x7k2q", "b-z2b4c")
        for step in ("small", "large")
    }
    assert steps == {("Workload", "etl:small"), ("Workload", "etl:large")}


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "\u202eb", "x" * 254])
def test_an_annotation_that_names_no_object_groups_no_pods(name: str):
    stated = {"dag_id": name, "task_id": "b", "try_number": "1"}
    assert find_workload_of_runs(None, {"a": "b"}, stated, restarts=False) is None
    assert find_workload_of_runs(None, {"a": "b"}, {**stated, "dag_id": "x" * 253}, restarts=False) == (
        "DAG",
        "x" * 253 + ":b",
    )


def test_lasting_controllers_stay_what_they_are():
    labels = {WORKLOAD.name: "other", "dag_id": "a", "task_id": "b", "try_number": "1"}
    for kind in LASTING_KINDS:
        assert find_workload_of_runs((kind, "web-x7k2q"), labels, {}, restarts=True) == (kind, "web-x7k2q")
    assert find_workload_of_runs(("Cluster", "db-x7k2q"), {}, {}, restarts=True) == ("Cluster", "db-x7k2q")


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("nightly-1764300000", "nightly"),
        ("nightly-20260101", "nightly"),
        ("etl-x7k2q", "etl"),
        ("etl-x7k2q-b4c5d", "etl"),
        ("etl-6ba7b810-9dad-11d1-80b4-00c04fd430c8", "etl"),
        ("etl-2ea432f1", "etl"),
        ("deploy-prod", "deploy-prod"),
        ("train-small", "train-small"),
        ("run-deadbeef", "run-deadbeef"),
        ("step-12", "step-12"),
        ("x7k2q", "x7k2q"),
        ("", ""),
    ],
)
def test_only_the_end_that_differs_between_runs_is_dropped(name: str, kept: str):
    assert drop_run_suffix(name) == kept


def test_many_runs_of_every_operator_are_few_workloads():
    draw, letters = random.Random(7), "bcdfghjklmnpqrstvwxz2456789"
    found = set()
    for _ in range(300):
        run = "nightly-" + "".join(draw.choice(letters) for _ in range(5))
        for operator in OPERATORS:
            labels = dict.fromkeys(operator.run_keys, run) | dict.fromkeys(operator.marks, "mark")
            for step in ("a", "b"):
                stated = labels | dict.fromkeys(operator.steps, f"{run}.{step}" if operator.owner_kinds else step)
                owners: list[tuple[str, str] | None] = [
                    (kind, run) for kind in sorted(operator.owner_kinds - {"Pod"})
                ] or [None]
                found |= {group(owner, stated) for owner in owners}
    assert len(found) <= 2 * sum(max(1, len(one.owner_kinds)) for one in OPERATORS)


@pytest.mark.parametrize("text", ["", "-a", "a b", "a/b", "x" * 64])
def test_an_invalid_name_is_refused_with_the_fix(text: str):
    with pytest.raises(ValueError, match="write at most 63 letters"):
        parse_workload_name(text)


def test_every_kind_of_the_table_runs_to_completion():
    assert all(runs_to_completion(kind) for operator in OPERATORS for kind in operator.owner_kinds)
    assert not any(runs_to_completion(kind) for kind in ("Deployment", "StatefulSet", "Cluster"))

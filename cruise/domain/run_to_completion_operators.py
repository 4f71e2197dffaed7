"""Pods that run to completion: the operators that create them, and what identifies the same work in the next run.

Each run has a different owner. Labels and annotations name what lasts: a schedule, a
template, a DAG. Pods with equal names, and equal steps, are one workload, so that a new pod is sized by earlier runs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

WORKLOAD_GROUP = "Workload"
"""The kind of workloads that users name."""
STEP_SEPARATOR = ":"
"""Before the step in a workload's name; names of Kubernetes objects do not contain it."""

POD_CONTROLLER_KINDS = frozenset(
    {
        "CronJob",
        "DaemonSet",
        "Deployment",
        "Job",
        "ReplicaSet",
        "ReplicationController",
        "Rollout",
        "StatefulSet",
    }
)
"""Kinds that control pods directly or through a ReplicaSet or Job."""
LASTING_KINDS = POD_CONTROLLER_KINDS - {"Job"} | {"CloneSet", "DeploymentConfig", "ScaledJob"}
"""Controllers that last; their pods are not grouped otherwise."""


@dataclass(frozen=True, slots=True)
class RunToCompletionOperator:
    """An operator whose pods run to completion.

    `owner_kinds` are the kinds of its pods' controllers; without any, its pods have no controller and all of `marks`.
    `groups` are pairs of a kind and a label or annotation that names the workload, in order of precedence; an empty
    kind is the controller's. `run_keys` name a single run: random suffixes of such values do not count. `steps` are
    labels or annotations that name the part of a run, the first that is present.
    """

    name: str
    owner_kinds: frozenset[str]
    groups: tuple[tuple[str, str], ...] = ()
    steps: tuple[str, ...] = ()
    run_keys: tuple[str, ...] = ()
    marks: frozenset[str] = frozenset()


class CompletedPod(NamedTuple):
    """A deleted pod that ran to completion: its usage may not be read yet. `workload` is Kind/name."""

    namespace: str
    name: str
    uid: str
    workload: str
    created_at: datetime | None


MAX_ENDED_PODS = 10_000
"""How many deleted pods a cluster remembers, the latest ones."""

_ARGO = "workflows.argoproj.io/"
_KUBEFLOW = "training.kubeflow.org/"
_SPARK = "sparkoperator.k8s.io/"

OPERATORS = (
    RunToCompletionOperator(
        "Argo Workflows",
        frozenset({"Workflow"}),
        (
            ("CronWorkflow", f"{_ARGO}cron-workflow"),
            ("WorkflowTemplate", f"{_ARGO}workflow-template"),
            ("ClusterWorkflowTemplate", f"{_ARGO}cluster-workflow-template"),
        ),
        (f"{_ARGO}node-name",),
        (f"{_ARGO}workflow",),
    ),
    RunToCompletionOperator(
        "Tekton",
        frozenset({"TaskRun", "PipelineRun", "CustomRun"}),
        (("Pipeline", "tekton.dev/pipeline"), ("Task", "tekton.dev/task"), ("ClusterTask", "tekton.dev/clusterTask")),
        ("tekton.dev/pipelineTask",),
        ("tekton.dev/pipelineRun", "tekton.dev/taskRun"),
    ),
    RunToCompletionOperator(
        "Spark",
        frozenset({"SparkApplication", "SparkCluster", "Pod"}),
        (
            ("ScheduledSparkApplication", f"{_SPARK}scheduled-app-name"),
            ("SparkApplication", f"{_SPARK}app-name"),
            ("SparkApplication", "spark-app-name"),
        ),
        ("spark-role",),
        (f"{_SPARK}app-name", "spark-app-name"),
    ),
    RunToCompletionOperator(
        "Spark, without the operator",
        frozenset(),
        (("SparkApplication", "spark-app-name"),),
        ("spark-role",),
        ("spark-app-name",),
        frozenset({"spark-role", "spark-app-selector"}),
    ),
    RunToCompletionOperator(
        "Kubeflow",
        frozenset({"JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "TrainJob", "XGBoostJob"}),
        (("", f"{_KUBEFLOW}job-name"),),
        (f"{_KUBEFLOW}replica-type", f"{_KUBEFLOW}job-role", "jobset.sigs.k8s.io/replicatedjob-name"),
        (f"{_KUBEFLOW}job-name",),
    ),
    RunToCompletionOperator(
        "KubeRay",
        frozenset({"RayCluster", "RayJob"}),
        (("RayCluster", "ray.io/originated-from-cr-name"), ("RayCluster", "ray.io/cluster")),
        ("ray.io/group", "ray.io/node-type"),
        ("ray.io/originated-from-cr-name", "ray.io/cluster"),
    ),
    RunToCompletionOperator(
        "JobSet",
        frozenset({"JobSet"}),
        (("", "jobset.sigs.k8s.io/jobset-name"),),
        ("jobset.sigs.k8s.io/replicatedjob-name",),
        ("jobset.sigs.k8s.io/jobset-name",),
    ),
    RunToCompletionOperator(
        "Volcano",
        frozenset({"Job.batch.volcano.sh"}),
        (("", "volcano.sh/job-name"),),
        ("volcano.sh/task-spec",),
        ("volcano.sh/job-name",),
    ),
    RunToCompletionOperator(
        "Dask",
        frozenset({"DaskCluster", "DaskJob", "DaskWorkerGroup"}),
        (("DaskCluster", "dask.org/cluster-name"),),
        ("dask.org/component",),
        ("dask.org/cluster-name",),
    ),
    RunToCompletionOperator("Flink", frozenset({"FlinkDeployment"}), steps=("component",)),
    RunToCompletionOperator(
        "GitHub Actions runners",
        frozenset({"EphemeralRunner"}),
        (("AutoscalingRunnerSet", "actions.github.com/scale-set-name"),),
    ),
    RunToCompletionOperator(
        "Airflow",
        frozenset(),
        (("DAG", "dag_id"),),
        ("task_id",),
        marks=frozenset({"dag_id", "task_id", "try_number"}),
    ),
    RunToCompletionOperator(
        "GitLab runners",
        frozenset(),
        (("GitLabProject", "project.runner.gitlab.com/id"),),
        ("job.runner.gitlab.com/name",),
        marks=frozenset({"job.runner.gitlab.com/pod", "project.runner.gitlab.com/id"}),
    ),
    RunToCompletionOperator(
        "Prow", frozenset(), (("ProwJob", "prow.k8s.io/job"),), marks=frozenset({"prow.k8s.io/job", "prow.k8s.io/id"})
    ),
)
"""The operators whose pods are grouped into workloads, each with the labels that group them."""

_BY_OWNER_KIND = {kind: operator for operator in OPERATORS for kind in operator.owner_kinds}
_OF_BARE_PODS = tuple(operator for operator in OPERATORS if not operator.owner_kinds)
# The end of a name that differs between runs: a uid, a hash or a time, or the suffix that Kubernetes generates.
_RUN_SUFFIX = re.compile(
    r"-(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?=[a-f]*[0-9])[0-9a-f]{8,40}|[bcdfghjklmnpqrstvwxz2456789]{5})$"
)
# A run may be created by another one, and its name has the suffixes of both.
_MAX_SUFFIXES = 3
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_STEP_INDEX = re.compile(r"\[[0-9]+\]")
_NO_STEP_CHARACTERS = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_TEXT = 512
_LONGEST_NAME = 253
_LONGEST_STEP = 63
# Recursive templates nest steps without end.
_MAX_NESTED_STEPS = 3


@lru_cache(maxsize=1024)
def runs_to_completion(kind: str) -> bool:
    """Return whether a controller's pods run to completion: Jobs of any API group, and those of the operators.

    Kinds of Kubeflow and KubeRay end with `Job`, such as MPIJob, PyTorchJob and RayJob.
    """
    name = kind.partition(".")[0]
    return name.endswith("Job") or name in _BY_OWNER_KIND


def parse_workload_name(text: str) -> str:
    """Return the name that users gave a workload; ValueError with the fix if it could not be a label."""
    if _LABEL_VALUE.fullmatch(text) is None:
        raise ValueError(
            f'"{text[:_LONGEST_STEP]}" is no name; write at most 63 letters, digits, -, _ and ., as in a label'
        )
    return text


def drop_run_suffix(name: str) -> str:
    """Return a name without the suffixes that differ between runs, such as a hash, a time or a generated suffix."""
    for _ in range(_MAX_SUFFIXES):
        found = _RUN_SUFFIX.search(name)
        if found is None or not found.start():
            break
        name = name[: found.start()]
    return name


def is_storable_name(text: str) -> bool:
    """Return whether a text can be a key in the database, as names of objects can: printable and not too long.

    The API server does not check annotations and owner references, nor Prometheus labels.
    """
    return len(text) <= _LONGEST_NAME and text.isprintable()


def find_workload_of_runs(
    owner: tuple[str, str] | None,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    *,
    stated: str = "",
    restarts: bool,
) -> tuple[str, str] | None:
    """Return kind and name of the workload that a pod belongs to in every run, None for a bare pod without any.

    `owner` has kind and name of its topmost known controller; it is returned if it lasts. `stated` is the name that
    users gave. `restarts`: the pod's restartPolicy is Always.
    """
    kind = owner[0] if owner is not None else ""
    if kind in LASTING_KINDS:
        return owner
    operator = _BY_OWNER_KIND.get(kind) if kind else _find_operator_of_bare_pod(labels, annotations)
    step = "" if operator is None else _read_step(operator, owner, labels, annotations)
    if stated and _LABEL_VALUE.fullmatch(stated) is not None:
        return WORKLOAD_GROUP, stated + step
    if operator is not None:
        run_names = {labels.get(key) for key in operator.run_keys} | ({owner[1]} if owner is not None else set())
        for group_kind, key in operator.groups:
            name = _get(key, labels, annotations)
            if name and is_storable_name(name):
                return group_kind or kind, (drop_run_suffix(name) if name in run_names else name) + step
    if owner is None:
        return None
    # Annotations of the Job itself are found by its name.
    is_run = kind not in ("Job", "Pod") and (not restarts or runs_to_completion(kind))
    return kind, (drop_run_suffix(owner[1]) if is_run else owner[1]) + step


def _get(key: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    return labels.get(key) or annotations.get(key) or ""


def _find_operator_of_bare_pod(
    labels: Mapping[str, str], annotations: Mapping[str, str]
) -> RunToCompletionOperator | None:
    if not labels:
        return None
    return next(
        (one for one in _OF_BARE_PODS if all(key in labels or key in annotations for key in one.marks)),
        None,
    )


def _read_step(
    operator: RunToCompletionOperator,
    owner: tuple[str, str] | None,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> str:
    """Return the step of a run with its separator, empty if there is none.

    Argo names a node by its path, as in `nightly-x7k2q[0].train(3:eu)`: run, index and item differ between pods.
    """
    text = next((found for key in operator.steps if (found := _get(key, labels, annotations))), "")[:_LONGEST_TEXT]
    if owner is not None:
        text = text.removeprefix(owner[1])
    path = _NO_STEP_CHARACTERS.sub("-", _STEP_INDEX.sub("", _drop_parentheses(text))).split(".")
    steps = [step for step in path if step.strip("-_")]
    step = ".".join(steps[-_MAX_NESTED_STEPS:])[:_LONGEST_STEP].strip("-_.")
    return f"{STEP_SEPARATOR}{step}" if step else ""


def _drop_parentheses(text: str) -> str:
    """Return a text without what is in parentheses, which may be nested."""
    kept, depth = [], 0
    for character in text:
        depth += character == "("
        if not depth:
            kept.append(character)
        depth -= character == ")" and depth > 0
    return "".join(kept)

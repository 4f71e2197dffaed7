"""Which controllers create pods that have work to finish, whatever restart policy the pods state."""

from functools import lru_cache

# Operators restart the containers of these pods in place (Always), and what a pod has calculated is lost with it.
_KINDS = frozenset(
    {
        "RayCluster",  # KubeRay: heads and workers
        "SparkApplication",
        "SparkCluster",
        "Pod",  # a Spark driver owns its executors
        "DaskCluster",
        "DaskWorkerGroup",
        "FlinkDeployment",
        "Workflow",
        "TaskRun",
        "PipelineRun",
        "CustomRun",
    }
)


@lru_cache(maxsize=1024)
def has_work_to_finish(kind: str) -> bool:
    """Tell whether pods of a controller of this kind run to completion: Jobs of any API group, and alike.

    Kubeflow's and KubeRay's kinds end with `Job`, such as MPIJob, PyTorchJob and RayJob.
    """
    name = kind.partition(".")[0]
    return name.endswith("Job") or name in _KINDS

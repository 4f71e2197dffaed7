"""The kinds of objects that are watched, and how they are listed."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import quote

from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.discovery import find_served_version
from cruise.domain.rightsizing_policies import POLICY_GROUP, POLICY_VERSION, get_policy_plural
from cruise.errors import CruiseError, NotFoundError, RefusedError
from cruise.kube_json.reading.stream import ListPage, StreamDecoder
from cruise.kube_json.wire import object_json, pod_json, policy_json, storage_json
from cruise.kube_json.wire.object_json import AnyObject


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """A kind: the path of its objects in all namespaces, and the type that decodes them.

    An `optional` kind may be missing or forbidden, and then has no objects. Most kinds are required: without them, an
    autoscaler, budget, limit or annotation could be violated. A kind with `read_if_served` may be missing, but must not
    be forbidden if the server has it.
    """

    path: str
    shape: type[object_json.AnyObject]
    optional: bool = False
    read_if_served: bool = False

    @property
    def plural(self) -> str:
        """The kind's name in URLs."""
        return self.path.rpartition("/")[2]


REPLICA_SETS = WatchedKind("/apis/apps/v1/replicasets", object_json.ReplicaSetObject)
JOBS = WatchedKind("/apis/batch/v1/jobs", object_json.JobObject)
NODES = WatchedKind("/api/v1/nodes", object_json.NodeObject)
PODS = WatchedKind("/api/v1/pods", pod_json.PodObject)
BUDGETS = WatchedKind("/apis/policy/v1/poddisruptionbudgets", object_json.DisruptionBudgetObject)


def get_policy_path(namespace: str, name: str) -> str:
    """Return the path of a policy object; the namespace of a ClusterRightsizingPolicy is empty."""
    place = f"/apis/{POLICY_GROUP}/{POLICY_VERSION}" + (f"/namespaces/{quote(namespace)}" if namespace else "")
    return f"{place}/{get_policy_plural(namespace)}/{quote(name)}"


POLICY_KINDS: tuple[WatchedKind, ...] = (
    WatchedKind(
        "/apis/cruise.io/v1alpha1/rightsizingpolicies",
        policy_json.RightsizingPolicyObject,
        optional=True,
        read_if_served=True,
    ),
    WatchedKind(
        "/apis/cruise.io/v1alpha1/clusterrightsizingpolicies",
        policy_json.ClusterRightsizingPolicyObject,
        optional=True,
        read_if_served=True,
    ),
)
ADMISSION_KINDS: tuple[WatchedKind, ...] = (
    REPLICA_SETS,
    JOBS,
    NODES,
    WatchedKind("/apis/apps/v1/deployments", object_json.DeploymentObject),
    WatchedKind("/apis/apps/v1/statefulsets", object_json.StatefulSetObject),
    WatchedKind("/apis/apps/v1/daemonsets", object_json.DaemonSetObject),
    WatchedKind("/apis/batch/v1/cronjobs", object_json.CronJobObject),
    WatchedKind("/apis/apps.kruise.io/v1alpha1/clonesets", object_json.CloneSetObject, optional=True),
    WatchedKind("/apis/autoscaling/v2/horizontalpodautoscalers", object_json.HorizontalAutoscalerObject),
    WatchedKind(
        "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers",
        object_json.VerticalAutoscalerObject,
        optional=True,
        read_if_served=True,
    ),
    *POLICY_KINDS,
    WatchedKind("/api/v1/limitranges", object_json.LimitRangeObject),
    WatchedKind("/api/v1/namespaces", object_json.NamespaceObject),
)
"""The kinds that admission reads."""

PRIORITY_CLASSES = WatchedKind(
    "/apis/scheduling.k8s.io/v1/priorityclasses", storage_json.PriorityClassObject, optional=True
)
STORAGE_KINDS: tuple[WatchedKind, ...] = (
    WatchedKind("/api/v1/persistentvolumeclaims", storage_json.VolumeClaimObject, optional=True),
    WatchedKind("/api/v1/persistentvolumes", storage_json.PersistentVolumeObject, optional=True),
    WatchedKind("/apis/storage.k8s.io/v1/storageclasses", storage_json.StorageClassObject, optional=True),
    WatchedKind("/apis/storage.k8s.io/v1/csinodes", storage_json.CsiNodeObject, optional=True),
    WatchedKind("/apis/storage.k8s.io/v1/csidrivers", storage_json.DriverObject, optional=True),
    WatchedKind("/apis/storage.k8s.io/v1/csistoragecapacities", storage_json.StorageCapacityObject, optional=True),
    WatchedKind("/apis/storage.k8s.io/v1/volumeattachments", storage_json.AttachmentObject, optional=True),
)
"""The kinds that limit where a pod with claims may run."""

QUOTAS = WatchedKind("/api/v1/resourcequotas", object_json.QuotaObject)
ALL_KINDS: tuple[WatchedKind, ...] = (*ADMISSION_KINDS, BUDGETS, QUOTAS, PRIORITY_CLASSES, *STORAGE_KINDS, PODS)

FIRST_LISTED = frozenset({REPLICA_SETS.plural, JOBS.plural, NODES.plural, PRIORITY_CLASSES.plural})
"""Kinds that are needed to read pods: owners, nodes and priority classes."""


async def list_pages(
    client: KubernetesClient, kind: WatchedKind, decoder: StreamDecoder[AnyObject], size: int
) -> AsyncIterator[ListPage[AnyObject]]:
    """Yield the pages of a list, all of one version; a watch continues from it.

    Pages are decoded one by one to save memory. Raises ExpiredVersionError if the list takes longer than the server
    keeps its version, and the client's errors.
    """
    token = ""
    while True:
        query = {"limit": str(size)} | ({"continue": token} if token else {})
        page = decoder.decode_page(await client.get(kind.path, query))
        yield page
        token = page.continue_token
        if not token:
            return


async def explain_unreadable_kind(
    client: KubernetesClient, kind: WatchedKind, error: CruiseError, has_objects: bool = False
) -> CruiseError | None:
    """Return why objects of a kind may exist and cannot be read; None if an optional kind has none for cruise.

    With `has_objects`, objects were read before that nobody has deleted.
    """
    forbidden = isinstance(error, RefusedError) and error.cause == "Forbidden"
    if not kind.optional or not (forbidden or isinstance(error, NotFoundError)):
        return error
    return await _find_problem_if_served(client, kind, error, forbidden, has_objects) if kind.read_if_served else None


async def _find_problem_if_served(
    client: KubernetesClient, kind: WatchedKind, error: CruiseError, forbidden: bool, has_objects: bool
) -> CruiseError | None:
    group, version = kind.path.split("/")[2:4]
    try:
        served = await find_served_version(client, group, kind.plural, version)
    except CruiseError:
        return error
    name = f"{kind.plural}.{group}"
    if served is None and not has_objects:
        return None
    if served is None:
        return NotFoundError(
            f"the API server no longer serves {name}, and its objects were not deleted: "
            "serve it again, or restart cruise to continue without them"
        )
    # The server checks permissions first: a kind that does not exist is forbidden too.
    if forbidden or served == version:
        return error
    return NotFoundError(
        f"the API server serves {name} as {served} only: its CustomResourceDefinition must serve {version}"
    )

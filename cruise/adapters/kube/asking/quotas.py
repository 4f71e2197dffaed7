"""ResourceQuotas, read as a whole."""

from collections.abc import Mapping

from cruise.adapters.kube.http.client import KubeClient
from cruise.domain.cluster import Quota
from cruise.kube_json.objects.quotas import decode_quotas

_PATH = "/api/v1/resourcequotas"
# As the API server's own cache has them: so fresh is good enough, and costs etcd nothing.
_FROM_CACHE = {"resourceVersion": "0"}


async def read_quotas(client: KubeClient) -> Mapping[str, tuple[Quota, ...]]:
    """Return what the quotas of each namespace leave. Raises BadInput, Refused, Throttled, Unavailable."""
    return decode_quotas(await client.get(_PATH, _FROM_CACHE))

"""VerticalPodAutoscalers of cruise's own, created and applied by its field manager."""

from datetime import datetime
from urllib.parse import quote

from cruise.adapters.kube.http.client import APPLY, KubeClient
from cruise.domain.recommendations import Recommendation
from cruise.kube_json.patches.vertical_autoscaler import API_VERSION, vertical_object, vertical_status


class VerticalPublisher:
    """Publishes recommendations as VerticalPodAutoscalers, which state an `update_mode`."""

    def __init__(self, client: KubeClient, update_mode: str) -> None:
        self._client = client
        self._update_mode = update_mode

    async def publish(self, wanted: Recommendation, since: datetime, *, is_there: bool) -> None:
        """Create the object, or apply it where cruise's own `is_there`, and then its status.

        Raises Conflict where somebody else has one of that name, or has changed cruise's; NotFound where this kind is
        not served; Refused, Throttled, Unavailable.
        """
        place = f"/apis/{API_VERSION}/namespaces/{quote(wanted.namespace)}/verticalpodautoscalers"
        path = f"{place}/{quote(wanted.name)}"
        document = vertical_object(wanted, self._update_mode)
        if is_there:
            await self._client.send("PATCH", path, document, content_type=APPLY, repeatable=True)
        else:
            # Not applied: that would join an object which somebody has made since.
            await self._client.send("POST", place, document)
        status = vertical_status(wanted, since)
        await self._client.send("PATCH", f"{path}/status", status, content_type=APPLY, repeatable=True)

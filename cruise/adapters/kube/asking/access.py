"""What cruise may do, by the API server's own judgement."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from cruise.adapters.kube.http.client import KubeClient
from cruise.errors import Unavailable

_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True)
class AccessCheck:
    """A verb on a resource, such as patch on `pods` with subresource `resize`; no namespace means all of them."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """Name it as RBAC rules do, such as `patch pods/resize`."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        place = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{'/' if self.subresource else ''}{self.subresource}{place}"


class _ReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


async def may(client: KubeClient, checks: Sequence[AccessCheck]) -> Sequence[bool]:
    """Tell for each check whether it is allowed. Raises Refused, Throttled, Unavailable."""
    return await asyncio.gather(*(_allowed(client, check) for check in checks))


async def _allowed(client: KubeClient, check: AccessCheck) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "verb": check.verb,
                "group": check.group,
                "resource": check.resource,
                "subresource": check.subresource,
                "namespace": check.namespace,
                "name": check.name,
            }
        },
    }
    # Nothing is kept of a review: asked twice it is answered twice.
    answer = await client.send("POST", _PATH, review, repeatable=True)
    try:
        return msgspec.json.decode(answer, type=_Review).status.allowed
    except msgspec.DecodeError as error:
        raise Unavailable(f"whether cruise may {check} cannot be read: {error}") from error

"""What cruise may do, as the API server's authorizer decides, and whether policies hold it to less."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from urllib.parse import quote

import msgspec

from cruise.adapters.kube.http.answers import decoded
from cruise.adapters.kube.http.client import KubeClient
from cruise.domain.preflight import AccessNeed
from cruise.errors import NotFound, Refused

_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


class _ReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


async def may(client: KubeClient, needs: Sequence[AccessNeed]) -> Sequence[bool]:
    """Tell for each need whether it is allowed. Raises Refused, Throttled, Unavailable."""
    return await asyncio.gather(*(_allowed(client, need) for need in needs))


async def held_to(client: KubeClient, binding: str) -> bool | None:
    """Tell whether a ValidatingAdmissionPolicy is bound, None where this may not be asked. Raises Unavailable."""
    try:
        await client.get(f"{_BINDINGS}/{quote(binding, safe='')}")
    except NotFound:
        return False
    except Refused:
        return None
    return True


async def _allowed(client: KubeClient, need: AccessNeed) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asdict(need)},
    }
    # The server stores nothing of a review, so it may be repeated.
    answer = await client.send("POST", _PATH, review, repeatable=True)
    return decoded(answer, _Review, f"whether cruise may {need}").status.allowed

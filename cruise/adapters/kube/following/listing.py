"""Lists in pages, decoded page by page, so that no list is in memory as a whole."""

from collections.abc import AsyncIterator

from cruise.adapters.kube.following.kinds import Kind
from cruise.adapters.kube.http.client import KubeClient
from cruise.errors import CruiseError, NotFound, Refused
from cruise.kube_json.reading.stream import Page, StreamDecoder
from cruise.kube_json.wire.object_json import AnyObject


async def list_pages(
    client: KubeClient, kind: Kind, decoder: StreamDecoder[AnyObject], size: int
) -> AsyncIterator[Page[AnyObject]]:
    """Yield the pages of a list, all as of one version: the pages' `version` is where a watch goes on.

    Raises Expired where the list took longer than the server keeps that version, besides the client's errors.
    """
    resume = ""
    while True:
        query = {"limit": str(size)} | ({"continue": resume} if resume else {})
        page = decoder.page(await client.get(kind.path, query))
        yield page
        resume = page.resume
        if not resume:
            return


async def may_be_without(client: KubeClient, kind: Kind, error: Exception) -> bool:
    """Tell whether a refusal means that a kind has no objects for cruise."""
    forbidden = isinstance(error, Refused) and error.cause == "Forbidden"
    if not kind.optional or not (forbidden or isinstance(error, NotFound)):
        return False
    # Rights are looked at first: what does not exist is forbidden too.
    return not (forbidden and kind.read_if_served and await _may_be_served(client, kind))


async def _may_be_served(client: KubeClient, kind: Kind) -> bool:
    try:
        await client.get(kind.path.rpartition("/")[0])
    except NotFound:
        return False
    except CruiseError:
        return True
    return True

"""Lists in pages, decoded page by page, so that no list is in memory as a whole."""

from collections.abc import AsyncIterator

from cruise.adapters.kube.following.kinds import Kind
from cruise.adapters.kube.http.client import KubeClient
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

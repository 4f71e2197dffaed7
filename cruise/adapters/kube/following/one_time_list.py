"""A cluster read once, by lists alone: a report needs no watches and no more than read rights."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cruise.adapters.kube.asking.node_autoscaling import ask_for_node_autoscaler
from cruise.adapters.kube.following.cache import Cache
from cruise.adapters.kube.following.kinds import ALL_KINDS, FIRST_LISTED, Kind
from cruise.adapters.kube.following.listing import list_pages, may_be_without
from cruise.adapters.kube.following.scales import ScaleReader
from cruise.adapters.kube.following.shelf import Key, key_of
from cruise.adapters.kube.http.client import KubeClient
from cruise.domain.cluster import Snapshot
from cruise.errors import BadInput, Expired, NotFound, Refused, Unavailable
from cruise.kube_json.reading.stream import StreamDecoder, Unreadable

_PAGE = 500
# A list that outlived its version is begun anew; one that does so again and again will not end.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Look:
    """The cluster, and the objects in it that cannot be read."""

    snapshot: Snapshot
    unreadable: Sequence[Unreadable]


async def look(client: KubeClient, on_read: Callable[[str, int], None]) -> Look:
    """List every kind that decisions read; `on_read` gets the number of objects of a kind so far.

    Raises BadInput where a kind may not be read, Throttled, Unavailable.
    """
    cache = Cache()
    for stage in (True, False):
        kinds = [kind for kind in ALL_KINDS if (kind.plural in FIRST_LISTED) is stage]
        answers = await asyncio.gather(*(_list(client, kind, cache, on_read) for kind in kinds), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
    await ScaleReader(client, cache, time.monotonic).read_due()
    snapshot = (await ask_for_node_autoscaler(client)).beside(cache.snapshot())
    return Look(snapshot, list(cache.unreadable()))


async def _list(client: KubeClient, kind: Kind, cache: Cache, on_read: Callable[[str, int], None]) -> None:
    for _ in range(_TRIES):
        try:
            await _list_once(client, kind, cache, on_read)
        except Expired:
            continue
        except (NotFound, Refused) as error:
            if await may_be_without(client, kind, error):
                return
            if isinstance(error, NotFound):
                raise BadInput(f"the cluster has no {kind.plural}: {error}") from error
            hint = "; deploy/rbac/observe.yaml has all rights that are needed" if error.cause == "Forbidden" else ""
            raise BadInput(f"{kind.plural} cannot be listed: {error}{hint}") from error
        return
    raise Unavailable(f"{kind.plural}: the list took longer than the server keeps it, {_TRIES} times in a row")


async def _list_once(client: KubeClient, kind: Kind, cache: Cache, on_read: Callable[[str, int], None]) -> None:
    shelf, count = cache.shelf(kind), 0
    names: set[Key] = set()
    async for page in list_pages(client, kind, StreamDecoder(kind.shape), _PAGE):
        for item in (*page.items, *page.unreadable):
            names.add(key_of(item))
            shelf.put(item, page.version)
        count += len(page.items) + len(page.unreadable)
        on_read(kind.plural, count)
    shelf.keep_only(names)

"""The pods of autoscalers' targets whose kind is not watched, read from their `scale`."""

import asyncio
import re
from collections.abc import Callable, Iterable
from urllib.parse import quote

import msgspec
import structlog

from cruise.adapters.kube.cache import ClusterCache, ScaleTargetKey
from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.responses import decode_answer
from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import quote_text
from cruise.domain.scheduling import LabelSelector
from cruise.errors import BadInputError, CruiseError, NotFoundError, RefusedError, ThrottledError, UnavailableError
from cruise.kube_json.objects.scheduling import parse_selector

log = structlog.get_logger()

_POLL_SECONDS = 1.0
# Selectors change rarely.
_REFRESH_SECONDS = 300.0
_FIRST_RETRY_SECONDS = 1.0
_MAX_RETRY_SECONDS = 30.0
_PARALLEL_READS = 4
# Empty for the core group.
_API_VERSION = re.compile("(?:(?:[a-z0-9][-a-z0-9.]*/)?[a-z0-9][-a-z0-9]*)?")


class _ScalableResource(msgspec.Struct):
    name: str
    kind: str = ""


class _ScalableResourceList(msgspec.Struct):
    resources: tuple[_ScalableResource, ...] = ()


class _ScaleStatus(msgspec.Struct):
    selector: str = ""


class _Scale(msgspec.Struct):
    status: _ScaleStatus = msgspec.field(default_factory=_ScaleStatus)


class ScaleReader:
    """Reads the scales of targets into the cache.

    The cache has None for a target that does not exist or has no scale. A target is missing from the cache while the
    server does not answer, which never counts as None. A scale that cannot be read (no permission, no selector) is
    there with the reason.
    """

    def __init__(self, client: KubernetesClient, cache: ClusterCache, clock: Callable[[], float]) -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._answers: dict[ScaleTargetKey, LabelSelector | None] = {}
        self._unreadable: dict[ScaleTargetKey, str] = {}
        self._retry_seconds: dict[ScaleTargetKey, float] = {}
        self._lock = asyncio.Lock()
        self._due_at: dict[ScaleTargetKey, float] = {}
        self._plurals: dict[tuple[str, str], str] = {}
        self._logged: set[ScaleTargetKey] = set()

    async def run(self) -> None:
        """Read due targets until cancelled."""
        while True:
            await self.read_if_due()
            await asyncio.sleep(_POLL_SECONDS)

    async def read_if_due(self) -> None:
        """Read new targets, and those whose last read is too old."""
        async with self._lock:
            await self._read_due()

    async def _read_due(self) -> None:
        targets = self._cache.list_scale_targets()
        for removed in self._due_at.keys() - targets.keys():
            del self._due_at[removed]
            self._answers.pop(removed, None)
            self._unreadable.pop(removed, None)
            self._logged.discard(removed)
            self._retry_seconds.pop(removed, None)
        now = self._clock()
        due = sorted(target for target in targets if self._due_at.get(target, now) <= now)
        for start in range(0, len(due), _PARALLEL_READS):
            await asyncio.gather(
                *(self._read(target, targets[target]) for target in due[start : start + _PARALLEL_READS])
            )
            self._cache.set_scales(self._answers, self._unreadable)
        self._cache.set_scales(self._answers, self._unreadable)

    async def _read(self, target: ScaleTargetKey, api: str) -> None:
        namespace, ref = target
        try:
            self._answers[target] = await self._read_selector(namespace, ref, api)
        except (ThrottledError, UnavailableError):
            # The previous answer stays.
            self._due_at[target] = self._clock() + self._next_retry(target)
        except NotFoundError as error:
            self._answers[target] = None
            self._unreadable.pop(target, None)
            self._plurals.pop((api, ref.kind), None)
            self._log_once(target, error)
            self._due_at[target] = self._clock() + self._next_retry(target)
        except CruiseError as error:
            self._answers.pop(target, None)
            if isinstance(error, BadInputError) or (isinstance(error, RefusedError) and error.cause == "Forbidden"):
                self._unreadable[target] = str(error)
            else:
                self._unreadable.pop(target, None)
            self._plurals.pop((api, ref.kind), None)
            self._log_once(target, error)
            self._due_at[target] = self._clock() + self._next_retry(target)
        else:
            self._unreadable.pop(target, None)
            self._logged.discard(target)
            self._retry_seconds.pop(target, None)
            self._due_at[target] = self._clock() + _REFRESH_SECONDS

    def _next_retry(self, target: ScaleTargetKey) -> float:
        seconds = self._retry_seconds.get(target, _FIRST_RETRY_SECONDS)
        self._retry_seconds[target] = min(2 * seconds, _MAX_RETRY_SECONDS)
        return seconds

    def _log_once(self, target: ScaleTargetKey, error: CruiseError) -> None:
        if target not in self._logged:
            name = f"{target[0]}/{target[1]}"
            log.warning("cannot read the scale of an autoscaler's target", target=name, problem=str(error))
        self._logged.add(target)

    async def _read_selector(self, namespace: str, ref: WorkloadRef, api: str) -> LabelSelector:
        if _API_VERSION.fullmatch(api) is None:
            # The API server does not check it in a VPA, and would be asked for another path.
            raise NotFoundError(f"{quote_text(api)} is no API version")
        group = f"/apis/{api}" if "/" in api else f"/api/{api or 'v1'}"
        plural = self._plurals.get((api, ref.kind))
        if plural is None:
            served = decode_answer(
                await self._client.get(group), _ScalableResourceList, f"the resources of {api}"
            ).resources
            plural = self._plurals[api, ref.kind] = _find_plural(ref.kind, served)
        path = f"{group}/namespaces/{quote(namespace, safe='')}/{plural}/{quote(ref.name, safe='')}/scale"
        text = decode_answer(await self._client.get(path), _Scale, f"the scale of {ref}").status.selector
        if not text:
            raise BadInputError("its scale has no selector")
        return parse_selector(text)


def _find_plural(kind: str, served: Iterable[_ScalableResource]) -> str:
    for one in served:
        if one.kind == kind and "/" not in one.name:
            return one.name
    raise NotFoundError(f"no kind {kind} is served")

"""Which pods the targets of autoscalers have, asked of their `scale` where the pods do not name their target."""

import asyncio
from collections.abc import Callable, Iterable
from urllib.parse import quote

import msgspec
import structlog

from cruise.adapters.kube.cache import ClusterCache, ScaleTargetKey
from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.responses import decode_answer
from cruise.domain.cluster import WorkloadRef
from cruise.domain.scheduling import LabelSelector
from cruise.errors import BadInputError, CruiseError, NotFoundError, RefusedError, ThrottledError, UnavailableError
from cruise.kube_json.objects.scheduling import parse_selector

log = structlog.get_logger()

_LOOK_SECONDS = 1.0
# A target's selector changes seldom; a target without one may get one soon.
_KNOWN_SECONDS = 300.0
_FIRST_RETRY_SECONDS = 1.0
_LONGEST_RETRY_SECONDS = 30.0
_AT_ONCE = 4


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
    """Reads the scales of targets and keeps the cache up to date.

    A target without a scale, or that is not there, has None in the cache. What is not answered (a server that is away)
    is left out of it: that is not known, and never counts as no. What cannot be read (no rights, a scale without a
    selector) is there with the reason.
    """

    def __init__(self, client: KubernetesClient, cache: ClusterCache, clock: Callable[[], float]) -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._answers: dict[ScaleTargetKey, LabelSelector | None] = {}
        self._unreadable: dict[ScaleTargetKey, str] = {}
        self._retry_seconds: dict[ScaleTargetKey, float] = {}
        self._reading = asyncio.Lock()
        self._due_at: dict[ScaleTargetKey, float] = {}
        self._plurals: dict[tuple[str, str], str] = {}
        self._said: set[ScaleTargetKey] = set()

    async def run(self) -> None:
        """Read what is due until cancelled."""
        while True:
            await self.read_if_due()
            await asyncio.sleep(_LOOK_SECONDS)

    async def read_if_due(self) -> None:
        """Read the targets that are new, and those that were read long ago."""
        async with self._reading:
            await self._read_due()

    async def _read_due(self) -> None:
        targets = self._cache.scale_targets()
        for gone in self._due_at.keys() - targets.keys():
            del self._due_at[gone]
            self._answers.pop(gone, None)
            self._unreadable.pop(gone, None)
            self._said.discard(gone)
            self._retry_seconds.pop(gone, None)
        now = self._clock()
        due = sorted(target for target in targets if self._due_at.get(target, now) <= now)
        for start in range(0, len(due), _AT_ONCE):
            await asyncio.gather(*(self._read(target, targets[target]) for target in due[start : start + _AT_ONCE]))
            self._cache.set_scales(self._answers, self._unreadable)
        self._cache.set_scales(self._answers, self._unreadable)

    async def _read(self, target: ScaleTargetKey, api: str) -> None:
        namespace, ref = target
        try:
            self._answers[target] = await self._selector_of(namespace, ref, api)
        except (ThrottledError, UnavailableError):
            # What was answered before is still the best that is known.
            self._due_at[target] = self._clock() + self._next_retry(target)
        except NotFoundError as error:
            self._answers[target] = None
            self._unreadable.pop(target, None)
            self._plurals.pop((api, ref.kind), None)
            self._say(target, error)
            self._due_at[target] = self._clock() + self._next_retry(target)
        except CruiseError as error:
            self._answers.pop(target, None)
            if isinstance(error, BadInputError) or (isinstance(error, RefusedError) and error.cause == "Forbidden"):
                self._unreadable[target] = str(error)
            else:
                self._unreadable.pop(target, None)
            self._plurals.pop((api, ref.kind), None)
            self._say(target, error)
            self._due_at[target] = self._clock() + self._next_retry(target)
        else:
            self._unreadable.pop(target, None)
            self._said.discard(target)
            self._retry_seconds.pop(target, None)
            self._due_at[target] = self._clock() + _KNOWN_SECONDS

    def _next_retry(self, target: ScaleTargetKey) -> float:
        seconds = self._retry_seconds.get(target, _FIRST_RETRY_SECONDS)
        self._retry_seconds[target] = min(2 * seconds, _LONGEST_RETRY_SECONDS)
        return seconds

    def _say(self, target: ScaleTargetKey, error: CruiseError) -> None:
        if target not in self._said:
            place = f"{target[0]}/{target[1]}"
            log.warning("the pods of an autoscaler's target are not known", target=place, why=str(error))
        self._said.add(target)

    async def _selector_of(self, namespace: str, ref: WorkloadRef, api: str) -> LabelSelector:
        group = f"/apis/{api}" if "/" in api else f"/api/{api or 'v1'}"
        plural = self._plurals.get((api, ref.kind))
        if plural is None:
            served = decode_answer(await self._client.get(group), _ScalableResourceList, f"what {api} serves").resources
            plural = self._plurals[api, ref.kind] = _plural_of(ref.kind, served)
        path = f"{group}/namespaces/{quote(namespace, safe='')}/{plural}/{quote(ref.name, safe='')}/scale"
        text = decode_answer(await self._client.get(path), _Scale, f"the scale of {ref}").status.selector
        if not text:
            raise BadInputError("its scale has no selector")
        return parse_selector(text)


def _plural_of(kind: str, served: Iterable[_ScalableResource]) -> str:
    for one in served:
        if one.kind == kind and "/" not in one.name:
            return one.name
    raise NotFoundError(f"no kind {kind} is served")

"""Where cruise goes further than the design that it started from: each departure by its name."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """Which departures hold.

    `plausible`: samples that cannot be true are refused, and growth is spread over scrapes that were missed.
    `revisions`: a template that states other resources than the one before it is sized from its own use.
    `lasting_templates`: no new pod is cut below what its template asks because of the nodes that exist just then.
    `ceiling`: memory limits end at the node, and at a multiple of what the template states.
    `fit_by_resource`: a resource that does not fit holds back nothing of the other one, and is shared as far as it
    goes; a resize that a kubelet put off is asked for again once there may be room.
    `careful_evictions`: only what lasts is mended by evictions, of pods that have somewhere to go.
    `own_peak`: no container is given more of its node's headroom than its own peak and a spare.
    `own_room`: what a workload's annotations ask beyond its requests is granted from free room.
    `calm`: a size is written where that is worth it; otherwise wherever it leaves its dead band.
    `quotas`: no write that a ResourceQuota would refuse, or that uses up what it grants.
    `careful_limits`: a limit is added only where the settings or the namespace ask for one, falls only on a history
    that is known to be long, and is never lowered below known use because of a LimitRange.
    `shown_kills`: out-of-memory kills in the pod statuses of a file count as if they had been watched.
    """

    name: str
    plausible: bool = True
    revisions: bool = True
    lasting_templates: bool = True
    ceiling: bool = True
    fit_by_resource: bool = True
    careful_evictions: bool = True
    own_peak: bool = True
    own_room: bool = True
    quotas: bool = True
    calm: bool = True
    careful_limits: bool = True
    shown_kills: bool = True


DEFAULT_RULES = Rules("default")
SEEDS = Rules(
    "seeds",
    plausible=False,
    revisions=False,
    lasting_templates=False,
    ceiling=False,
    fit_by_resource=False,
    careful_evictions=False,
    own_peak=False,
    own_room=False,
    quotas=False,
    calm=False,
    careful_limits=False,
    shown_kills=False,
)
RULES = (DEFAULT_RULES, SEEDS)

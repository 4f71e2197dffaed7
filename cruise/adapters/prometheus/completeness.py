"""Whether a server calls its own answer incomplete, or only remarks on the query.

Both come in the same list. Prometheus begins its remarks with "PromQL". A text that names a store, a failure, a
time-out or a limit is about data that is missing: partial responses of Thanos, a remote read that failed, results that
were cut off. Any other text is taken for a remark and logged, since a note that comes with every answer must not end
all reading.
"""

import re
from collections.abc import Sequence

import structlog

from cruise.errors import Unavailable

log = structlog.get_logger()

_REMARK = re.compile(r"\s*PromQL (info|warning)\b", re.IGNORECASE)
_MISSING = re.compile(
    r"stores?\b|storeapi|partial|incomplete|truncat|limit|exceed|too many|skip|drop|missing|miss\b|not all|some of|"
    r"fail|error|\berr\b|timed? ?out|timeout|deadline|cancel|abort|unavailable|unreachable|unhealthy|refused|reset|"
    r"\baway\b|\bdown\b|could ?n.t|can ?not|unable|remote.read|(receive|fetch) series|ingester|querier",
    re.IGNORECASE,
)


def refuse_incomplete(warnings: Sequence[str] | None, is_partial: bool, accept_partial: bool) -> None:
    """Raise Unavailable where a server says that something is missing from its answer."""
    if accept_partial:
        return
    if is_partial:
        raise _incomplete("isPartial")
    for said in warnings or ():
        if _REMARK.match(said):
            continue
        if _MISSING.search(said):
            raise _incomplete(said)
        log.info("warning of Prometheus taken for a remark on the query", said=_shortened(said))


def _incomplete(said: str) -> Unavailable:
    return Unavailable(
        f"Prometheus calls its own answer incomplete: {_shortened(said)} (prometheus_accept_partial would take it)"
    )


def _shortened(said: str) -> str:
    return " ".join(said.split())[:160]

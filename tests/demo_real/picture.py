"""The demo's live status: nodes, pods, and the requests that cruise sent to the API server."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tests.controlplane.api import Api, Json
from tests.controlplane.audit import AuditEvent, AuditLog
from tests.demo_real.cast import CORES, NAMESPACE, NODES, compute_asked_millicores
from tests.e2e.live.sizes import ObservedSize, containers_of, counted, requests

GIB = 1024
NEWEST = 12
SIGNS = {
    ("patch", "pods/resize"): "resized",
    ("create", "pods/eviction"): "evicted",
    ("patch", "nodes"): "tainted or untainted",
    ("create", "events"): "told in Events",
}


@dataclass(slots=True)
class Watcher:
    """What was there at the start, and what cruise has done since."""

    api: Api
    audit: AuditLog
    account: str
    before: dict[str, ObservedSize] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    newest: list[AuditEvent] = field(default_factory=list)
    _read_until: int = 0

    def begin(self) -> None:
        """Remember how things are before cruise."""
        pods = self.api.items("pods", NAMESPACE)
        self.before = {node.name: counted(pods, node.name) for node in NODES}
        self._read_until = self.audit.mark()

    def look(self) -> "Picture":
        """See how things are now."""
        until = self.audit.mark()
        for event in self.audit.writes(self._read_until, self.account):
            sign = SIGNS.get((event.verb, event.resource))
            if sign is not None:
                self.done[sign if event.code < 300 else f"{sign}, refused"] += 1
            if sign is not None and event.resource != "events":
                self.newest = [event, *self.newest][:NEWEST]
        self._read_until = until
        nodes = self.api.items("nodes")
        return Picture(self.api.items("pods", NAMESPACE), nodes, self.before, self.done, self.newest)


@dataclass(frozen=True, slots=True)
class Picture:
    """One moment."""

    pods: Sequence[Json]
    nodes: Sequence[Json]
    before: dict[str, ObservedSize]
    done: Counter[str]
    newest: Sequence[AuditEvent]

    @property
    def pending(self) -> int:
        """How many pods are on no node."""
        return sum(1 for one in self.pods if not one["spec"].get("nodeName"))

    def line(self) -> str:
        """All in one line."""
        now = sum(counted(list(self.pods), node.name).cpu for node in NODES)
        was = sum(size.cpu for size in self.before.values())
        done = ", ".join(f"{count} {what}" for what, count in sorted(self.done.items())) or "nothing done yet"
        cores = f"requested {was / 1000:.1f} -> {now / 1000:.1f} of {CORES * len(NODES)} cores"
        less, more = self._compare_with_asked()
        asked = f"{less / 1000:.1f} less than asked, {more / 1000:.1f} more"
        return f"{cores} ({asked}), {self.pending} pending, {done}"

    def _compare_with_asked(self) -> tuple[int, int]:
        """Return by how many millicores containers request less than submitted, and by how many more."""
        asked = compute_asked_millicores()
        changes = [
            requests(pod, name).cpu - asked[pod["metadata"]["labels"]["app"], name]
            for pod in self.pods
            for name in containers_of(pod)
        ]
        return -sum(one for one in changes if one < 0), sum(one for one in changes if one > 0)

    def render(self, hints: Sequence[str]) -> RenderableType:
        """All as a table for a terminal."""
        table = Table("node", "pods", "CPU before", "CPU now", "memory before", "memory now", "taint", box=None)
        for node in NODES:
            was, now = self.before[node.name], counted(list(self.pods), node.name)
            count = sum(1 for one in self.pods if one["spec"].get("nodeName") == node.name)
            table.add_row(
                node.name,
                str(count),
                f"{was.cpu / 1000:.2f}",
                f"{now.cpu / 1000:.2f} / {CORES}",
                f"{was.memory / GIB:.1f} GiB",
                f"{now.memory / GIB:.1f} GiB",
                "overloaded" if self._is_tainted(node.name) else "",
            )
        lines = [f"{SIGNS[one.verb, one.resource]} {one.target}: {_answer(one)}" for one in self.newest]
        return Group(*map(Text, hints), Text(), table, Text(), Text(self.line()), Text(), *map(Text, lines))

    def _is_tainted(self, name: str) -> bool:
        [node] = [one for one in self.nodes if one["metadata"]["name"] == name]
        return any(taint["key"] == "cruise.io/overloaded" for taint in node["spec"].get("taints") or ())


def _answer(event: AuditEvent) -> str:
    if event.code >= 300:
        return f"refused, {event.response_status.reason or event.code}"
    if event.resource != "pods/resize":
        return "done"
    containers = event.request_object["spec"].get("containers", ())
    return ", ".join(_sizes(one["resources"].get("requests", {})) for one in containers)


def _sizes(requests: Json) -> str:
    return " ".join(f"{amount} {name}" for name, amount in sorted(requests.items()))

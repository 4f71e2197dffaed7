"""What a preflight says of kubelets: as the source of usage, and beside Prometheus' figures."""

from collections.abc import Iterator

from cruise.decisions.preflight.items import CheckItem, Level, count_of, named
from cruise.domain.cross_check import CrossCheck
from cruise.domain.preflight import KubeletFacts


def kubelet_items(facts: KubeletFacts) -> Iterator[CheckItem]:
    """Yield the items of a cluster whose usage comes from its kubelets."""
    words = f"{facts.read:,} of {facts.asked:,} kubelets that were asked can be read"
    if not facts.read:
        yield CheckItem(
            "metrics", "kubelets", Level.RED, facts.problem or "no node is ready", "mend that, or set prometheus_url"
        )
        return
    if facts.problem:
        fix = "the pods of nodes that cannot be read are left alone"
        yield CheckItem("metrics", "kubelets", Level.WARN, f"{words}: {facts.problem}", fix)
    else:
        yield CheckItem("metrics", "kubelets", Level.OK, f"{words}; history begins when `cruise serve` does")
    pressure = f"pressure (PSI) seen on {facts.pressured:,} of {facts.read:,} nodes"
    if facts.pressured:
        yield CheckItem("metrics", "pressure", Level.OK, pressure)
        return
    fix = "needs Kubernetes 1.34, cgroup v2, psi=1 on the kernel's command line, and kubelet_endpoint=cadvisor"
    yield CheckItem("metrics", "pressure", Level.WARN, pressure, f"{fix}; without it CPU demand is its usage")


def cross_check_item(found: CrossCheck) -> CheckItem:
    """Judge a comparison."""
    asked = f"{found.nodes - found.unread:,} of {found.nodes:,} nodes"
    if found.disagreements:
        containers = ["/".join(key) for key in sorted(found.disagreements)]
        words = f"the kubelets of {asked} contradict the figures of {count_of(containers, 'container')}"
        fix = "see who exposes these series, and select cAdvisor's by prometheus_cadvisor_matchers"
        return CheckItem("metrics", "kubelets", Level.WARN, f"{words}: {named(containers)}", fix)
    if found.compared:
        words = f"the kubelets of {asked} agree with the figures of {len(found.compared):,} containers"
        return CheckItem("metrics", "kubelets", Level.OK, words)
    return CheckItem("metrics", "kubelets", Level.OK, f"not compared with any kubelet: {found.why_unread or 'no pods'}")

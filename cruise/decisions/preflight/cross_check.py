"""What a preflight says of Prometheus' figures beside those of some kubelets."""

from cruise.decisions.preflight.items import CheckItem, Level, count_of, named
from cruise.domain.cross_check import CrossCheck


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

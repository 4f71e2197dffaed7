"""How some nodes fall short of what a pod asks, one clause for each obstacle."""

from collections.abc import Mapping

from cruise.decisions.packing.blocking.amounts import joined
from cruise.decisions.packing.blocking.asking import company_words, node_affinity_words, selector_words, taint_words
from cruise.decisions.packing.building.obstacle import Obstacle
from cruise.domain.cluster import Node, Pod


def clause(obstacle: str, pod: Pod, there: list[Node], lacking: Mapping[str, str]) -> str:
    """What is wrong with these nodes: `lack disk=ssd`, `is cordoned`; `lacking` has how much by resource obstacle."""
    be, have, lack, do = ("is", "has", "lacks", "does") if len(there) == 1 else ("are", "have", "lack", "do")
    over = joined([spread.topology_key for spread in pod.constraints.spread])
    told = {
        Obstacle.NODE_SELECTOR: f"{lack} {selector_words(pod)}",
        Obstacle.NODE_AFFINITY: f"{do} not meet its node affinity ({node_affinity_words(pod)})",
        Obstacle.TAINTS: f"{have} {taint_words(pod, there)}, which it does not tolerate",
        Obstacle.CORDONED: f"{be} cordoned",
        Obstacle.NOT_READY: f"{be} not ready",
        Obstacle.VOLUME: "cannot give it its volume",
        Obstacle.AFFINITY: f"{lack} the company it wants: {company_words(pod.constraints.affinity)}",
        Obstacle.TOPOLOGY_SPREAD: f"would make {f'it too uneven over {over}' if over else 'others too uneven'}",
        Obstacle.ANTI_AFFINITY: f"{have} pods that anti-affinity keeps it away from",
        Obstacle.HOST_PORTS: f"{have} its host port taken",
        Obstacle.PREEMPTION_POLICY: f"{have} room only where others are preempted, which its policy forbids",
    }
    if obstacle in told:
        return told[Obstacle(obstacle)]
    return f"{be} {lacking[obstacle]} short" if obstacle in lacking else f"{be} full of pods that stay"

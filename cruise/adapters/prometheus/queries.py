"""The queries: one sample a series and step, and nothing computed by the server but the rates of whole nodes."""

from cruise.adapters.prometheus.settings import PrometheusSettings

ROOT_GROUP_RANGE = "3m"


def usage_query(settings: PrometheusSettings, metric: str, pods: str) -> str:
    """Return the query for a metric of all containers whose pod's name matches the regular expression `pods`.

    An instant selector costs the server one sample a step. `max by` drops the labels that are not read and folds
    twins, such as those of a highly available pair of servers.
    """
    labels = settings.labels
    kept = dict.fromkeys((labels.namespace, labels.pod, labels.container, labels.id, labels.node))
    return f"max by ({', '.join(label for label in kept if label)}) ({usage_selector(settings, metric, pods)})"


def usage_selector(settings: PrometheusSettings, metric: str, pods: str) -> str:
    """Return what selects the series that `usage_query` reads, each of which costs a sample a step."""
    labels = settings.labels
    matchers = [f'{labels.container}!=""', f'{labels.container}!="POD"']
    if settings.matchers:
        matchers.append(settings.matchers)
    matchers.append(f"{labels.pod}=~{quoted(pods)}")
    return f"{metric}{{{','.join(matchers)}}}"


def node_load_query(settings: PrometheusSettings) -> str:
    """Return the query for the 1-minute load averages of all nodes."""
    labels = dict.fromkeys((settings.node_load_label, "instance"))
    selector = f"{settings.metrics.node_load}{{{settings.matchers}}}"
    return f"max by ({', '.join(label for label in labels if label)}) ({selector})"


def node_name_query(settings: PrometheusSettings) -> str:
    """Return the query for the names that node exporters report of their machines."""
    return f"max by (nodename, instance) (node_uname_info{{{settings.matchers}}})"


def root_group_query(settings: PrometheusSettings, metric: str) -> str:
    """Return the query for the rate of a counter of each node's root control group."""
    labels = dict.fromkeys((settings.labels.node, "instance"))
    matchers = [f'{settings.labels.id}="/"', *([settings.matchers] if settings.matchers else [])]
    # Between the last two scrapes: over the whole range, a node that is scraped for a moment would seem to be idle.
    rate = f"irate({metric}{{{','.join(matchers)}}}[{ROOT_GROUP_RANGE}])"
    return f"max by ({', '.join(label for label in labels if label)}) ({rate})"


def quoted(text: str) -> str:
    """Return a PromQL string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

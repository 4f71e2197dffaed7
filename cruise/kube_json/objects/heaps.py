"""Read what a container's heap may grow to from its environment, command, arguments and image.

Only recognised options are kept, and of the environment nothing else: its values may be secret.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from cruise.domain.heaps import HeapBound, HeapRuntime
from cruise.domain.resources import MEBIBYTE
from cruise.kube_json.objects.environment import COMMAND, UNREADABLE, ContainerEnvironment, StatedSize, parse_share
from cruise.kube_json.objects.jvm_options import DEFAULT_JVM_HEAP, JVM_VARIABLES, PRODUCT_VARIABLES, read_jvm_heap
from cruise.kube_json.objects.quantities import MAXIMUM_QUANTITY
from cruise.kube_json.wire.pod_json import ContainerSpec, EnvironmentVariable, QuantityText

# The words of image names that suggest a runtime, and those of programs that run beside one.
_IMAGE_WORDS = {
    **dict.fromkeys(
        (
            *("activemq", "amazoncorretto", "artemis", "cassandra", "corretto", "elasticsearch", "flink", "gradle"),
            *("graalvm", "hadoop", "hbase", "hive", "ibmjava", "jboss", "jdk", "jenkins", "jetty", "jre", "kafka"),
            *("keycloak", "liberica", "logstash", "maven", "neo4j", "nexus3", "nifi", "openjdk", "opensearch"),
            *("payara", "presto", "pulsar", "sapmachine", "semeru", "solr", "sonarqube", "spark", "temurin", "tomcat"),
            *("trino", "wildfly", "zookeeper", "zulu"),
        ),
        HeapRuntime.JVM,
    ),
    "aspnet": HeapRuntime.DOTNET,
    "dotnet": HeapRuntime.DOTNET,
    "nodejs": HeapRuntime.NODE,
}
_OTHER_PROGRAMS = frozenset({"dashboards", "exporter", "operator", "proxy"})
_PROGRAMS = {
    "java": HeapRuntime.JVM,
    "node": HeapRuntime.NODE,
    "npm": HeapRuntime.NODE,
    "yarn": HeapRuntime.NODE,
    "dotnet": HeapRuntime.DOTNET,
}
_WORD = re.compile(r"[a-z0-9]+")

_GO_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_NODE_OPTION = re.compile(r"(--max[-_](old[-_]space|semi[-_]space)[-_]size([-_]percentage)?=)(.*)")
_DOTNET_PREFIXES = ("DOTNET_", "COMPlus_")
_DOTNET_LIMIT, _DOTNET_PERCENT = "GCHeapHardLimit", "GCHeapHardLimitPercent"
_HEXADECIMAL = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,15})")

_VARIABLES = (
    JVM_VARIABLES
    | PRODUCT_VARIABLES
    | {"AUTOMEMLIMIT", "GOMEMLIMIT", "NODE_OPTIONS"}
    | {prefix + name for prefix in _DOTNET_PREFIXES for name in (_DOTNET_LIMIT, _DOTNET_PERCENT)}
)
_DEFAULTS = {
    HeapRuntime.JVM: DEFAULT_JVM_HEAP,
    # V8 takes half of the memory, at most 2 GiB, on large machines 4 GiB.
    HeapRuntime.NODE: HeapBound(
        HeapRuntime.NODE,
        "Node.js' default of half the memory limit",
        limit_share=0.5,
        max_bytes=4 << 30,
        is_stated=False,
        holds_request=False,
    ),
    HeapRuntime.DOTNET: HeapBound(
        HeapRuntime.DOTNET,
        ".NET's default of 75 % of the memory limit",
        limit_share=0.75,
        min_bytes=20 * MEBIBYTE,
        small_limit_share=1.0,
        is_stated=False,
        holds_request=False,
    ),
}


# Decoded containers are few; a process sees more of them with time.
_CACHE_SIZE = 8192


@dataclass(frozen=True, slots=True)
class HeapReader:
    """Reads the bounds of heaps, each container of a template once: of its environment only a hash is kept."""

    _cache: dict[tuple[int, QuantityText | None, QuantityText | None], HeapBound | None] = field(default_factory=dict)

    def read(self, spec: ContainerSpec) -> HeapBound | None:
        """Return what a container's heap may grow to, None if nothing suggests a runtime with a bound."""
        resources = spec.resources
        limits, requests = (resources.limits, resources.requests) if resources is not None else (None, None)
        key = (
            hash((spec.name, spec.image, spec.env, spec.env_from, spec.command, spec.args)),
            None if limits is None else limits.get("memory"),
            None if requests is None else requests.get("memory"),
        )
        try:
            return self._cache[key]
        except KeyError:
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            found = self._cache[key] = _read_heap_bound(spec)
            return found


def _read_heap_bound(spec: ContainerSpec) -> HeapBound | None:
    words = [word for word in (*(spec.command or ()), *(spec.args or ())) if type(word) is str]
    suggested = _find_runtime(spec.image, words)
    # Most containers state nothing, and are not read any further.
    if not any([_may_state_heap(one) for one in spec.env or ()]) and not any(map(_may_have_option, words)):
        return _get_default(suggested, spec)
    environment = ContainerEnvironment(spec, words)
    for runtime, read in _READERS.items():
        found = read(environment) if suggested in (None, runtime) else None
        if found is not None:
            return found
    return _get_default(suggested, spec)


def _may_state_heap(one: EnvironmentVariable) -> bool:
    return one.name in _VARIABLES or (type(one.value) is str and "-X" in one.value)


def _may_have_option(word: str) -> bool:
    return "-X" in word or "--max" in word or "$" in word


def _get_default(suggested: HeapRuntime | None, spec: ContainerSpec) -> HeapBound | None:
    """Return what a runtime's heap grows to without options; unknown if variables of other objects may have some."""
    bound = None if suggested is None else _DEFAULTS[suggested]
    if bound is None or not spec.env_from:
        return bound
    return replace(bound, source=f"{bound.source}, unless envFrom states another", is_known=False)


def _find_runtime(image: str | None, words: Sequence[str]) -> HeapRuntime | None:
    for word in words:
        for part in word.split() if " " in word else (word,):
            found = _PROGRAMS.get(part.rpartition("/")[2])
            if found is not None:
                return found
    return _find_runtime_of_image(image) if image else None


@lru_cache(maxsize=1 << 12)
def _find_runtime_of_image(image: str) -> HeapRuntime | None:
    """Return the runtime that the name of an image suggests; its registry and tag do not count."""
    path, _, last = image.partition("@")[0].lower().rpartition("/")
    last = last.partition(":")[0]
    words = {*_WORD.findall(path.partition("/")[2]), *_WORD.findall(last)}
    if words & _OTHER_PROGRAMS:
        return None
    if last == "node":
        return HeapRuntime.NODE
    return next((runtime for word, runtime in _IMAGE_WORDS.items() if word in words), None)


def _read_node(environment: ContainerEnvironment) -> HeapBound | None:
    """Read V8's options; those of the command win over NODE_OPTIONS."""
    sizes: dict[str, tuple[StatedSize, str]] = {}
    if environment.is_unreadable("NODE_OPTIONS"):
        sizes["old"] = (StatedSize(is_known=False, text=UNREADABLE), "NODE_OPTIONS")
    for place, words in (("NODE_OPTIONS", environment.split("NODE_OPTIONS")), (COMMAND, environment.words)):
        for found in filter(None, map(_NODE_OPTION.fullmatch, words)):
            option, space, percentage, text = found.groups()
            if percentage:
                share = parse_share(text, 100)
                size = None if share is None else StatedSize(limit_share=share, text=option + text)
            else:
                size = environment.read_size(text, {"": MEBIBYTE}, option)
            if size is not None:
                sizes[space[:3]] = (size, place)
    if "old" not in sizes:
        return None
    # The young generation has three semi-spaces. V8 takes only what it needs.
    young = 3 * sizes["sem"][0].fixed_bytes if "sem" in sizes else 0
    size, place = sizes["old"]
    return size.build_bound(HeapRuntime.NODE, place, extra_bytes=young, holds_request=False)


def _read_dotnet(environment: ContainerEnvironment) -> HeapBound | None:
    """Read the hard limit of the heap, or else its share of the memory limit; both are hexadecimal."""
    readers: dict[str, Callable[[int], StatedSize]] = {
        _DOTNET_LIMIT: lambda amount: StatedSize(min(amount, MAXIMUM_QUANTITY)),
        _DOTNET_PERCENT: lambda amount: StatedSize(limit_share=amount / 100 if amount <= 100 else 0.0),
    }
    for name, create in readers.items():
        for variable in [prefix + name for prefix in _DOTNET_PREFIXES]:
            text = environment.get_text(variable)
            found = _HEXADECIMAL.fullmatch(text)
            size = create(int(found.group(1), 16)) if found else StatedSize()
            if size != StatedSize():
                return size._replace(text=f"{text} (hexadecimal)").build_bound(HeapRuntime.DOTNET, variable)
            if text and not text.isascii():
                size = StatedSize(is_known=False, text="a value that the pod does not show")
                return size.build_bound(HeapRuntime.DOTNET, variable)
    return None


def _read_go(environment: ContainerEnvironment) -> HeapBound | None:
    """Read Go's soft memory limit, or the share that the library automemlimit makes of it.

    Go collects garbage more often below it; the heap grows to it whatever it needs only if GOGC is off.
    """
    fills = environment.get_text("GOGC") == "off"
    size = environment.read_size(environment.get_text("GOMEMLIMIT"), _GO_UNITS, "")
    if size is not None:
        return size.build_bound(HeapRuntime.GO, "GOMEMLIMIT", holds_request=fills)
    text = environment.get_text("AUTOMEMLIMIT")
    share = parse_share(text, 1)
    if share is None or environment.get_text("GOMEMLIMIT"):
        return None
    return StatedSize(limit_share=share, text=text).build_bound(HeapRuntime.GO, "AUTOMEMLIMIT", holds_request=fills)


# If several state a bound, the first counts.
_READERS: dict[HeapRuntime, Callable[[ContainerEnvironment], HeapBound | None]] = {
    HeapRuntime.JVM: read_jvm_heap,
    HeapRuntime.NODE: _read_node,
    HeapRuntime.DOTNET: _read_dotnet,
    HeapRuntime.GO: _read_go,
}

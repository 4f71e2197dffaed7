"""Read what a container's heap may grow to from its environment, command, arguments and image.

Only recognised options are kept, and of the environment nothing else: its values may be secret.

A JVM's options are read in the order in which the JVM reads them.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from cruise.domain.heaps import HeapBound, HeapRuntime
from cruise.domain.resources import MEBIBYTE
from cruise.kube_json.objects.environment import COMMAND, UNREADABLE, ContainerEnvironment, StatedSize, parse_share
from cruise.kube_json.objects.quantities import MAXIMUM_QUANTITY
from cruise.kube_json.wire.pod_json import ContainerSpec, EnvironmentVariable, QuantityText

_TOOL_OPTIONS, _LAUNCHER_OPTIONS, _LAST_OPTIONS = "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"
JVM_VARIABLES = frozenset({_TOOL_OPTIONS, _LAUNCHER_OPTIONS, _LAST_OPTIONS})
# Variables that the start scripts of one product read. Others, such as JAVA_OPTS, may not be read by the image.
PRODUCT_VARIABLES = frozenset(
    {
        *("CATALINA_OPTS", "ES_JAVA_OPTS", "JAVA_OPTS_APPEND", "JAVA_OPTS_KC_HEAP", "JENKINS_JAVA_OPTS", "JVMFLAGS"),
        *("KAFKA_HEAP_OPTS", "LS_JAVA_OPTS", "OPENSEARCH_JAVA_OPTS", "SERVER_JVMFLAGS", "SOLR_JAVA_MEM"),
    }
)
_SIZES = {
    "-Xmx": "heap",
    "-XX:MaxHeapSize=": "heap",
    "-Xms": "initial",
    "-XX:InitialHeapSize=": "initial",
    "-XX:MaxRAM=": "ram",
    "-XX:MaxDirectMemorySize=": "direct",
}
_PERCENTAGES = {"-XX:MaxRAMPercentage=": "share", "-XX:MinRAMPercentage=": "small-share"}
# Before percentages: one part of so many.
_FRACTION = re.compile(r"-XX:MaxRAMFraction=([1-9][0-9]{0,5})")
_UNITS = {"": 1}
_UNITS |= {unit: 1 << 10 * (at // 2 + 1) for at, unit in enumerate("kKmMgGtT")}
_DEFAULT_SHARE, _DEFAULT_SMALL_SHARE = 0.25, 0.5
# The default of MaxHeapSize: a share is not smaller, except where half of the memory is.
_LEAST_HEAP = 126 * MEBIBYTE
DEFAULT_JVM_HEAP = HeapBound(
    HeapRuntime.JVM,
    "the JVM's default of 25 % of the memory limit",
    limit_share=_DEFAULT_SHARE,
    min_bytes=_LEAST_HEAP,
    small_limit_share=_DEFAULT_SMALL_SHARE,
    is_stated=False,
    holds_request=False,
)

_Settings = dict[str, tuple[StatedSize, str]]


def read_jvm_heap(environment: ContainerEnvironment) -> HeapBound | None:
    """Return the largest heap of a JVM, None if no option states any."""
    stated: _Settings = {}
    hints: list[_Settings] = []
    _read_variable(environment, _TOOL_OPTIONS, stated)
    _read_variable(environment, _LAUNCHER_OPTIONS, stated)
    for name in environment.variables:
        if name in PRODUCT_VARIABLES:
            _read_variable(environment, name, stated)
        elif name not in JVM_VARIABLES:
            hinted: _Settings = {}
            _collect(environment, environment.split(name), name, hinted)
            hints += [hinted] if hinted else []
    words = environment.words
    _collect(environment, words[: words.index("-jar")] if "-jar" in words else words, COMMAND, stated)
    _read_variable(environment, _LAST_OPTIONS, stated)
    unread = _build_bound(stated)
    read = [bound for bound in [_build_bound(hinted | stated) for hinted in hints] if bound != unread]
    if not read:
        return unread if stated else None
    # The image may read such a variable or not: the largest heap counts.
    every = [unread, *read]
    largest = max(read, key=lambda one: (one.fixed_bytes, one.limit_share))
    return replace(
        largest,
        source=f"{largest.source}, if the image reads it",
        limit_share=max([one.limit_share for one in every]),
        request_share=max([one.request_share for one in every]),
        min_bytes=max([one.min_bytes for one in every]),
        small_limit_share=max([one.small_limit_share for one in every]),
        is_known=all([one.is_known for one in every]),
        holds_request=unread.holds_request,
    )


def _read_variable(environment: ContainerEnvironment, name: str, settings: _Settings) -> None:
    if environment.is_unreadable(name) and name in JVM_VARIABLES | PRODUCT_VARIABLES:
        settings["heap"] = (StatedSize(is_known=False, text=UNREADABLE), name)
    _collect(environment, environment.split(name), name, settings)


def _collect(environment: ContainerEnvironment, words: Sequence[str], place: str, settings: _Settings) -> None:
    for word in words:
        if word[:2] != "-X":
            continue
        for prefix, key in _SIZES.items():
            size = environment.read_size(word[len(prefix) :], _UNITS, prefix) if word.startswith(prefix) else None
            if size is not None:
                settings[key] = (size, place)
        for prefix, key in _PERCENTAGES.items():
            share = parse_share(word[len(prefix) :], 100) if word.startswith(prefix) else None
            if share is not None:
                settings[key] = (StatedSize(limit_share=share, text=word), place)
        fraction = _FRACTION.fullmatch(word)
        if fraction is not None:
            settings["fraction"] = (StatedSize(limit_share=1 / int(fraction.group(1)), text=word), place)
        if word == "-XX:-UseContainerSupport":
            settings["container"] = (StatedSize(is_known=False, text=word), place)


def _build_bound(settings: _Settings) -> HeapBound:
    """Return the bound, as HotSpot computes it: a stated heap wins over shares, and none is below the initial one."""
    extra = settings["direct"][0].fixed_bytes if "direct" in settings else 0
    for key in ("heap", "container"):
        if key in settings:
            size, place = settings[key]
            return size.build_bound(HeapRuntime.JVM, place, extra_bytes=extra)
    bound = replace(DEFAULT_JVM_HEAP, extra_bytes=extra, is_stated=True)
    if "small-share" in settings:
        bound = replace(bound, small_limit_share=settings["small-share"][0].limit_share)
    stated = settings.get("share", settings.get("fraction"))
    if stated is not None:
        size, place = stated
        bound = replace(bound, limit_share=size.limit_share, source=f"{size.text} in {place}", holds_request=True)
    if "ram" in settings:
        ram, place = settings["ram"]
        bound = HeapBound(
            HeapRuntime.JVM,
            f"{ram.text} in {place}",
            bound.compute_heap(ram.fixed_bytes, 0),
            bound.limit_share * ram.limit_share,
            bound.limit_share * ram.request_share,
            extra_bytes=extra,
            is_known=ram.is_known,
        )
    initial = settings["initial"][0].fixed_bytes if "initial" in settings else 0
    return replace(bound, fixed_bytes=max(bound.fixed_bytes, initial))


# The words of image names that suggest a runtime, and those of programs that run next to one.
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
_CACHE_SIZE = 1024


@dataclass(frozen=True, slots=True)
class HeapBoundReader:
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

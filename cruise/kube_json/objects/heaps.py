"""Read what a container's heap may grow to from its environment, command, arguments and image.

Values of the environment may be secret: of a variable only a recognised option is kept.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from cruise.domain.heaps import HeapBound, HeapRuntime
from cruise.domain.resources import MEBIBYTE, QuantityError, parse_memory_bytes
from cruise.kube_json.objects.quantities import MAXIMUM_QUANTITY
from cruise.kube_json.wire.pod_json import ContainerSpec, EnvironmentVariable, ResourceFieldReference

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

# Options of the JVM in the order in which it reads them: later ones win.
_TOOL_OPTIONS, _LAUNCHER_OPTIONS, _LAST_OPTIONS = "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"
_JVM_VARIABLES = frozenset({_TOOL_OPTIONS, _LAUNCHER_OPTIONS, _LAST_OPTIONS})
# Variables that the start scripts of one product read. Others, such as JAVA_OPTS, may not be read by the image.
_PRODUCT_VARIABLES = frozenset(
    {
        *("CATALINA_OPTS", "ES_JAVA_OPTS", "JAVA_OPTS_APPEND", "JAVA_OPTS_KC_HEAP", "JENKINS_JAVA_OPTS", "JVMFLAGS"),
        *("KAFKA_HEAP_OPTS", "LS_JAVA_OPTS", "OPENSEARCH_JAVA_OPTS", "SERVER_JVMFLAGS", "SOLR_JAVA_MEM"),
    }
)
_JVM_SIZES = {
    "-Xmx": "heap",
    "-mx": "heap",
    "-XX:MaxHeapSize=": "heap",
    "-Xms": "initial",
    "-ms": "initial",
    "-XX:InitialHeapSize=": "initial",
    "-XX:MaxRAM=": "ram",
    "-XX:MaxDirectMemorySize=": "direct",
}
_JVM_NUMBERS = {"-XX:MaxRAMPercentage=": "percent", "-XX:MinRAMPercentage=": "small-percent"}
_DEFAULT_PERCENT, _DEFAULT_SMALL_PERCENT = 25.0, 50.0
# MaxHeapSize by default; a heap that is a share of the memory is not smaller, unless that is more than the small share.
_LEAST_HEAP = 126 * MEBIBYTE
_JVM_DEFAULT = "JVM default of 25 % of the memory limit"

_GO_VARIABLES = frozenset({"GOMEMLIMIT", "AUTOMEMLIMIT"})
_GO_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

_NODE_OPTION = re.compile(r"--(max[-_]old[-_]space[-_]size(?:[-_]percentage)?|max[-_]semi[-_]space[-_]size)=(.*)")
# V8: half of the memory, at most 2 GiB, on large machines 4 GiB.
_NODE_DEFAULT_SHARE, _NODE_MOST = 0.5, 4 << 30

_DOTNET_LIMIT, _DOTNET_PERCENT = "GCHeapHardLimit", "GCHeapHardLimitPercent"
_DOTNET_PREFIXES = ("DOTNET_", "COMPlus_")
_DOTNET_VARIABLES = frozenset(
    prefix + name for prefix in _DOTNET_PREFIXES for name in (_DOTNET_LIMIT, _DOTNET_PERCENT)
)
_DOTNET_DEFAULT_SHARE, _DOTNET_LEAST = 0.75, 20 * MEBIBYTE

_VARIABLES = _JVM_VARIABLES | _GO_VARIABLES | _DOTNET_VARIABLES | {"NODE_OPTIONS"}

# Marks in expanded texts: a number that is a memory limit (L) or request (R), and a value that cannot be read.
_LIMIT, _REQUEST, _END, _UNREADABLE = "\ue000", "\ue001", "\ue002", "\ue003"
_MARKS = str.maketrans("", "", _LIMIT + _REQUEST + _END + _UNREADABLE)
_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")
_SHELL_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_SIZE = re.compile(rf"([{_LIMIT}{_REQUEST}]?)([0-9]{{1,18}}){_END}?([A-Za-z]{{0,3}})", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{0,9})?", re.ASCII)
_HEXADECIMAL = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,15})", re.ASCII)
_JVM_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class _Size(NamedTuple):
    """A size that an option states: bytes, or a share of the memory limit or request; `text` is the option."""

    fixed_bytes: int = 0
    limit_share: float = 0.0
    request_share: float = 0.0
    is_known: bool = True
    text: str = ""


def read_heap_bound(spec: ContainerSpec) -> HeapBound | None:
    """Return what a container's heap may grow to, None if nothing suggests a runtime with a bound."""
    words = [text for text in (*(spec.command or ()), *(spec.args or ())) if type(text) is str]
    suggested = _find_runtime(spec.image, words)
    is_stated = any([_may_state_heap(one) for one in spec.env or ()]) or any(["-" in word for word in words])
    if suggested is None and not is_stated:
        return None
    options = _Options(spec, words)
    for read in (_read_jvm, _read_node, _read_dotnet, _read_go):
        found = read(options, suggested)
        if found is not None and found.is_stated:
            return found
    return None if suggested is None else _get_default(suggested, has_unread_variables=bool(spec.env_from))


def _may_state_heap(one: EnvironmentVariable) -> bool:
    return one.name in _VARIABLES or (type(one.value) is str and "-X" in one.value)


def _find_runtime(image: str | None, words: Sequence[str]) -> HeapRuntime | None:
    for word in words:
        for part in word.split() if " " in word else (word,):
            found = _PROGRAMS.get(part.rpartition("/")[2])
            if found is not None:
                return found
    return _find_runtime_of_image(image) if image else None


@lru_cache(maxsize=1 << 12)
def _find_runtime_of_image(image: str) -> HeapRuntime | None:
    """Return the runtime that an image's name suggests; registry and tag do not count."""
    repository = image.partition("@")[0].lower()
    path, _, last = repository.rpartition("/")
    last = last.partition(":")[0]
    words = {*_WORD.findall(path.partition("/")[2]), *_WORD.findall(last)}
    if words & _OTHER_PROGRAMS:
        return None
    if last == "node":
        return HeapRuntime.NODE
    return next((runtime for word, runtime in _IMAGE_WORDS.items() if word in words), None)


def _get_default(runtime: HeapRuntime, *, has_unread_variables: bool) -> HeapBound | None:
    """Return what a runtime's heap grows to if nothing is stated, or if it may be stated where it cannot be read."""
    bound = {
        HeapRuntime.JVM: HeapBound(
            HeapRuntime.JVM,
            _JVM_DEFAULT,
            limit_share=_DEFAULT_PERCENT / 100,
            least_bytes=_LEAST_HEAP,
            small_limit_share=_DEFAULT_SMALL_PERCENT / 100,
        ),
        HeapRuntime.NODE: HeapBound(
            HeapRuntime.NODE,
            "Node.js default of half the memory limit",
            limit_share=_NODE_DEFAULT_SHARE,
            most_bytes=_NODE_MOST,
        ),
        HeapRuntime.DOTNET: HeapBound(
            HeapRuntime.DOTNET,
            ".NET default of 75 % of the memory limit",
            limit_share=_DOTNET_DEFAULT_SHARE,
            least_bytes=_DOTNET_LEAST,
            small_limit_share=1.0,
        ),
    }.get(runtime)
    if bound is None:
        return None
    if has_unread_variables:
        bound = replace(bound, source=f"{bound.source}, unless envFrom states another", is_known=False)
    return replace(bound, is_stated=False, holds_request=False)


class _Options:
    """A container's variables and words with references expanded as the kubelet does."""

    def __init__(self, spec: ContainerSpec, words: Sequence[str]) -> None:
        self._spec = spec
        self.has_unread_variables = bool(spec.env_from)
        self.variables: dict[str, str] = {}
        for one in spec.env or ():
            self.variables[one.name] = self._evaluate(one)
        self.words = [self._expand(word) for word in words]

    def _evaluate(self, one: EnvironmentVariable) -> str:
        if one.value_from is None:
            return self._expand("" if one.value is None else str(one.value))
        reference = one.value_from.resource_field_ref
        return _UNREADABLE if reference is None else self._evaluate_reference(reference)

    def _evaluate_reference(self, reference: ResourceFieldReference) -> str:
        """Return a resource of this container as a marked number; without a limit it is the node's memory."""
        if reference.container_name not in (None, "", self._spec.name):
            return _UNREADABLE
        mark = {"limits.memory": _LIMIT, "requests.memory": _REQUEST}.get(reference.resource)
        amount = self.limit_bytes if mark == _LIMIT else self.request_bytes
        try:
            divisor = parse_memory_bytes(str(reference.divisor or 1)) or 1
        except QuantityError:
            return _UNREADABLE
        return f"{mark}{-(-amount // divisor)}{_END}" if mark and amount and divisor > 0 else _UNREADABLE

    @property
    def limit_bytes(self) -> int:
        """The memory limit, 0 for none or an invalid one."""
        return self._read_memory("limits")

    @property
    def request_bytes(self) -> int:
        """The memory request, else the limit."""
        return self._read_memory("requests") or self.limit_bytes

    def _read_memory(self, kind: str) -> int:
        stated = getattr(self._spec.resources, kind, None) or {}
        try:
            return max(0, min(parse_memory_bytes(str(stated.get("memory") or 0)), MAXIMUM_QUANTITY))
        except QuantityError:
            return 0

    def _expand(self, text: str) -> str:
        """Replace `$(NAME)` by the variables known so far; what is not known stays, as it does in Kubernetes."""
        text = text.translate(_MARKS)
        return _REFERENCE.sub(self._replace_reference, text) if "$" in text else text

    def _replace_reference(self, found: re.Match[str]) -> str:
        name = found.group(1)
        if name is None:
            return "$"
        return self.variables.get(name, _UNREADABLE if self.has_unread_variables else found.group())

    def split_variable(self, name: str) -> list[str]:
        """Return the options in a variable."""
        return _split(self.variables.get(name, ""))

    def split_words(self) -> list[str]:
        """Return the words of command and arguments; those of a script are split, with its variables replaced."""
        words: list[str] = []
        for word in self.words:
            words += _split(_SHELL_REFERENCE.sub(self._replace_shell_reference, word)) if " " in word else [word]
        return words

    def _replace_shell_reference(self, found: re.Match[str]) -> str:
        name = found.group(1) or found.group(2)
        return self.variables.get(name, _UNREADABLE if self.has_unread_variables else "")

    def read_size(self, text: str, units: Mapping[str, int], option: str) -> _Size | None:
        """Parse a size with its unit; None if it is invalid."""
        if _UNREADABLE in text:
            return _Size(is_known=False, text=f"{option} with a value that cannot be read")
        found = _SIZE.fullmatch(text)
        factor = units.get(found.group(3)) if found else None
        if found is None or factor is None:
            return None
        amount, label = min(int(found.group(2)) * factor, MAXIMUM_QUANTITY), option + text.translate(_MARKS)
        if found.group(1) == _LIMIT:
            return _Size(limit_share=amount / self.limit_bytes, text=label)
        if found.group(1) == _REQUEST:
            return _Size(request_share=amount / self.request_bytes, text=label)
        return _Size(amount, text=label)


def _split(text: str) -> list[str]:
    return text.replace('"', " ").replace("'", " ").split()


def _build(runtime: HeapRuntime, size: _Size, place: str, **more: object) -> HeapBound:
    bound = HeapBound(
        runtime, f"{size.text} in {place}", size.fixed_bytes, size.limit_share, size.request_share, is_known=size.is_known
    )
    return replace(bound, **more)  # type: ignore[arg-type]


# JVM.

_Settings = dict[str, tuple[_Size, str]]
_JVM_LOWER_UNITS = {**_JVM_UNITS, **{unit.upper(): factor for unit, factor in _JVM_UNITS.items()}}


def _read_jvm(options: _Options, suggested: HeapRuntime | None) -> HeapBound | None:
    stated: _Settings = {}
    hinted: _Settings = {}
    _read_jvm_options(options, _TOOL_OPTIONS, stated)
    _read_jvm_options(options, _LAUNCHER_OPTIONS, stated)
    for name in options.variables:
        if name not in _JVM_VARIABLES:
            _read_jvm_options(options, name, stated if name in _PRODUCT_VARIABLES else hinted)
    words = options.split_words()
    last = words.index("-jar") if "-jar" in words else len(words)
    _collect_jvm_settings(options, words[:last], "command or args", stated)
    _read_jvm_options(options, _LAST_OPTIONS, stated)
    if not (stated or hinted):
        return None
    if suggested not in (None, HeapRuntime.JVM) and not stated:
        return None
    if not hinted:
        return _build_jvm_bound(stated)
    # The image may read the variable or not: the larger heap counts.
    read, unread = _build_jvm_bound(hinted | stated), _build_jvm_bound(stated)
    return replace(
        read,
        source=read.source if stated else f"{read.source}, if the image reads it",
        fixed_bytes=max(read.fixed_bytes, unread.fixed_bytes),
        limit_share=max(read.limit_share, unread.limit_share),
        request_share=max(read.request_share, unread.request_share),
        least_bytes=max(read.least_bytes, unread.least_bytes),
        small_limit_share=max(read.small_limit_share, unread.small_limit_share),
        is_known=read.is_known and unread.is_known,
        holds_request=bool(stated) and read.holds_request,
    )


def _read_jvm_options(options: _Options, name: str, settings: _Settings) -> None:
    if options.variables.get(name) == _UNREADABLE and name in _JVM_VARIABLES | _PRODUCT_VARIABLES:
        settings["heap"] = (_Size(is_known=False, text="options from a ConfigMap, a Secret or a field"), name)
    else:
        _collect_jvm_settings(options, options.split_variable(name), name, settings)


def _collect_jvm_settings(options: _Options, words: Sequence[str], place: str, settings: _Settings) -> None:
    for word in words:
        if word[:1] != "-":
            continue
        for prefix, key in _JVM_SIZES.items():
            if word.startswith(prefix):
                size = options.read_size(word[len(prefix) :], _JVM_LOWER_UNITS, prefix)
                if size is not None:
                    settings[key] = (size, place)
        for prefix, key in _JVM_NUMBERS.items():
            text = word[len(prefix) :]
            if word.startswith(prefix) and _DECIMAL.fullmatch(text) and float(text) <= 100:
                settings[key] = (_Size(limit_share=float(text) / 100, text=word), place)
        if word == "-XX:-UseContainerSupport":
            settings["container"] = (_Size(is_known=False, text=word), place)


def _build_jvm_bound(settings: _Settings) -> HeapBound:
    direct, _ = settings.get("direct", (_Size(), ""))
    if "heap" in settings and (settings["heap"][0] != _Size(text=settings["heap"][0].text)):
        return _build(HeapRuntime.JVM, *settings["heap"], extra_bytes=direct.fixed_bytes)
    if "container" in settings:
        return _build(HeapRuntime.JVM, *settings["container"], extra_bytes=direct.fixed_bytes)
    share, place = settings.get("percent", (_Size(limit_share=_DEFAULT_PERCENT / 100, text=_JVM_DEFAULT), ""))
    small, _ = settings.get("small-percent", (_Size(limit_share=_DEFAULT_SMALL_PERCENT / 100), ""))
    initial, _ = settings.get("initial", (_Size(), ""))
    bound = HeapBound(
        HeapRuntime.JVM,
        f"{share.text} in {place}" if place else share.text,
        initial.fixed_bytes,
        share.limit_share,
        least_bytes=_LEAST_HEAP,
        small_limit_share=small.limit_share,
        extra_bytes=direct.fixed_bytes,
        is_stated=bool(place) or "ram" in settings or "initial" in settings,
        holds_request=bool(place) or "ram" in settings,
    )
    if "ram" not in settings:
        return bound
    ram, place = settings["ram"]
    heap = bound.compute_heap(ram.fixed_bytes, 0)
    return replace(
        bound,
        source=f"{ram.text} in {place}",
        fixed_bytes=heap,
        limit_share=share.limit_share * ram.limit_share,
        request_share=share.limit_share * ram.request_share,
        is_known=ram.is_known,
    )


# Node.js, .NET and Go.


def _read_node(options: _Options, suggested: HeapRuntime | None) -> HeapBound | None:
    """Read V8's options; the command line wins over NODE_OPTIONS."""
    if suggested not in (None, HeapRuntime.NODE):
        return None
    if options.variables.get("NODE_OPTIONS") == _UNREADABLE:
        size = _Size(is_known=False, text="options from a ConfigMap, a Secret or a field")
        return _build(HeapRuntime.NODE, size, "NODE_OPTIONS")
    sizes: dict[str, tuple[_Size, str]] = {}
    for place, words in (("NODE_OPTIONS", options.split_variable("NODE_OPTIONS")), ("command or args", options.split_words())):
        for word in words:
            found = _NODE_OPTION.fullmatch(word)
            if found is None:
                continue
            name, text = found.group(1).replace("_", "-"), found.group(2)
            if name.endswith("percentage"):
                if _DECIMAL.fullmatch(text) and 0 < float(text) <= 100:
                    sizes["heap"] = (_Size(limit_share=float(text) / 100, text=word), place)
                continue
            size = options.read_size(text, {"": MEBIBYTE}, f"--{name}=")
            if size is not None:
                sizes["heap" if "old" in name else "young"] = (size, place)
    if "heap" not in sizes:
        return None
    young, _ = sizes.get("young", (_Size(), ""))
    # The young generation has three semi-spaces. V8 takes memory as it needs it.
    return _build(HeapRuntime.NODE, *sizes["heap"], extra_bytes=3 * young.fixed_bytes, holds_request=False)


def _read_dotnet(options: _Options, suggested: HeapRuntime | None) -> HeapBound | None:
    """Read the hard limit, or else its share of the memory limit; both are hexadecimal."""
    if suggested not in (None, HeapRuntime.DOTNET):
        return None
    for name, create in (
        (_DOTNET_LIMIT, lambda amount: _Size(min(amount, MAXIMUM_QUANTITY))),
        (_DOTNET_PERCENT, lambda amount: _Size(limit_share=amount / 100 if amount <= 100 else 0.0)),
    ):
        found = _read_dotnet_variable(options, name, create)
        if found is not None:
            return found
    return None


def _read_dotnet_variable(options: _Options, name: str, create: Callable[[int], _Size]) -> HeapBound | None:
    for prefix in _DOTNET_PREFIXES:
        text = options.variables.get(prefix + name, "")
        if _UNREADABLE in text or _END in text:
            return _build(HeapRuntime.DOTNET, _Size(is_known=False, text="a value that cannot be read"), prefix + name)
        found = _HEXADECIMAL.fullmatch(text.strip())
        size = create(int(found.group(1), 16)) if found else _Size()
        if found and size != _Size():
            return _build(HeapRuntime.DOTNET, size._replace(text=f"{found.group()} (hexadecimal)"), prefix + name)
    return None


def _read_go(options: _Options, suggested: HeapRuntime | None) -> HeapBound | None:
    """Read Go's soft memory limit, or that of the library automemlimit.

    Garbage collection becomes frequent below it; the heap grows up to it only if GOGC is off.
    """
    if suggested is not None:
        return None
    fills = options.variables.get("GOGC", "").strip().lower() == "off"
    text = options.variables.get("GOMEMLIMIT", "").strip()
    if text:
        size = options.read_size(text, _GO_UNITS, "")
        return None if size is None else _build(HeapRuntime.GO, size, "GOMEMLIMIT", holds_request=fills)
    text = options.variables.get("AUTOMEMLIMIT", "").strip()
    if _DECIMAL.fullmatch(text) and 0 < float(text) <= 1:
        return _build(HeapRuntime.GO, _Size(limit_share=float(text), text=text), "AUTOMEMLIMIT", holds_request=fills)
    return None

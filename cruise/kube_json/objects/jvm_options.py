"""Read the largest heap of a JVM from its options, in the order in which the JVM reads them."""

import re
from collections.abc import Sequence
from dataclasses import replace

from cruise.domain.heaps import HeapBound, HeapRuntime
from cruise.domain.resources import MEBIBYTE
from cruise.kube_json.objects.environment import COMMAND, UNREADABLE, ContainerEnvironment, StatedSize, parse_share

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

"""Expand a container's variables, command and arguments as the kubelet does, and read sizes that options state.

Values may be secret: only the text of a recognised option leaves this module.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from cruise.domain.heaps import HeapBound, HeapRuntime
from cruise.domain.resources import QuantityError, parse_memory_bytes
from cruise.kube_json.objects.quantities import MAXIMUM_QUANTITY
from cruise.kube_json.wire.pod_json import ContainerSpec, EnvironmentVariable, ResourceFieldReference

COMMAND = "command or args"
UNREADABLE = "options from a ConfigMap, a Secret or a field"

# Marks in expanded texts: a number that is a memory limit or request, its end, and a value that cannot be read.
_LIMIT, _REQUEST, _END, _UNREADABLE = "\ue000", "\ue001", "\ue002", "\ue003"
_MARKS = str.maketrans("", "", _LIMIT + _REQUEST + _END + _UNREADABLE)
_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")
_SHELL_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_SIZE = re.compile(rf"(?:([{_LIMIT}{_REQUEST}])([0-9]{{1,18}}){_END}|([0-9]{{1,18}}))([A-Za-z]{{0,3}})")
_SHARE = re.compile(r"[0-9]{1,6}(\.[0-9]{0,9})?")
# The most characters that all references of a container are replaced by: each variable may repeat the one before.
_MOST_REPLACED = 1 << 18


class StatedSize(NamedTuple):
    """A size that an option states: bytes, or a share of the memory limit or request; `text` is the option."""

    fixed_bytes: int = 0
    limit_share: float = 0.0
    request_share: float = 0.0
    is_known: bool = True
    text: str = ""

    def build_bound(
        self, runtime: HeapRuntime, place: str, *, extra_bytes: int = 0, holds_request: bool = True
    ) -> HeapBound:
        """Return the bound of a heap of this size, which an option in `place` states."""
        return HeapBound(
            runtime,
            f"{self.text} in {place}",
            self.fixed_bytes,
            self.limit_share,
            self.request_share,
            extra_bytes=extra_bytes,
            is_known=self.is_known,
            holds_request=holds_request,
        )


class ContainerEnvironment:
    """A container's variables and words with their references expanded; a value that is not stated stays unreadable."""

    def __init__(self, spec: ContainerSpec, words: Sequence[str]) -> None:
        self._has_unread_variables = bool(spec.env_from)
        self._container = spec.name
        self._limit_bytes = _read_memory(spec, "limits")
        self._request_bytes = _read_memory(spec, "requests") or self._limit_bytes
        self._left_to_replace = _MOST_REPLACED
        self.variables: dict[str, str] = {}
        for one in spec.env or ():
            self.variables[one.name] = self._evaluate(one)
        self.words: list[str] = []
        for word in map(self._expand, words):
            self.words += self._split_script(word) if " " in word else [word]

    def is_unreadable(self, name: str) -> bool:
        """Return whether a variable has a value that the pod does not show."""
        return _UNREADABLE in self.variables.get(name, "")

    def get_text(self, name: str) -> str:
        """Return the value of a variable, empty if it has none."""
        return self.variables.get(name, "").strip()

    def split(self, name: str) -> list[str]:
        """Return the options in a variable."""
        return _split(self.variables.get(name, ""))

    def read_size(self, text: str, units: Mapping[str, int], option: str) -> StatedSize | None:
        """Parse the size that an option states; None if it is invalid."""
        if _UNREADABLE in text:
            return StatedSize(is_known=False, text=f"{option} with a value that the pod does not show")
        found = _SIZE.fullmatch(text)
        factor = units.get(found.group(4)) if found else None
        if found is None or factor is None:
            return None
        mark, marked, plain, _ = found.groups()
        amount = min(int(marked or plain) * factor, MAXIMUM_QUANTITY)
        if mark == _LIMIT:
            return StatedSize(limit_share=amount / self._limit_bytes, text=f"{option}(the memory limit)")
        if mark == _REQUEST:
            return StatedSize(request_share=amount / self._request_bytes, text=f"{option}(the memory request)")
        return StatedSize(amount, text=option + text)

    def _evaluate(self, one: EnvironmentVariable) -> str:
        if one.value_from is None:
            return self._expand("" if one.value is None else str(one.value))
        reference = one.value_from.resource_field_ref
        return _UNREADABLE if reference is None else self._evaluate_reference(reference)

    def _evaluate_reference(self, reference: ResourceFieldReference) -> str:
        """Return a size of this container as a marked number; without a limit it is the node's memory."""
        mark = {"limits.memory": _LIMIT, "requests.memory": _REQUEST}.get(reference.resource)
        amount = self._limit_bytes if mark == _LIMIT else self._request_bytes
        if mark is None or not amount or reference.container_name not in (None, "", self._container):
            return _UNREADABLE
        try:
            divisor = parse_memory_bytes(str(reference.divisor or 1)) or 1
        except QuantityError:
            return _UNREADABLE
        return f"{mark}{-(-amount // divisor)}{_END}" if divisor > 0 else _UNREADABLE

    def _expand(self, text: str) -> str:
        """Replace `$(NAME)` by the variables known so far; what is not known stays, as in Kubernetes."""
        text = text.translate(_MARKS)
        return self._replace(_REFERENCE, self._replace_reference, text) if "$" in text else text

    def _replace(self, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str], text: str) -> str:
        """Replace the references in a text; it is unreadable if they stand for too much."""
        parts, end = [], 0
        for found in pattern.finditer(text):
            value = replace(found)
            self._left_to_replace -= len(value)
            if self._left_to_replace < 0:
                return _UNREADABLE
            parts += [text[end : found.start()], value]
            end = found.end()
        return "".join([*parts, text[end:]])

    def _replace_reference(self, found: re.Match[str]) -> str:
        name = found.group(1)
        if name is None:
            return "$"
        return self.variables.get(name, _UNREADABLE if self._has_unread_variables else found.group())

    def _split_script(self, script: str) -> list[str]:
        """Return the words of a script with the shell's references to variables replaced."""
        return _split(self._replace(_SHELL_REFERENCE, self._replace_shell_reference, script))

    def _replace_shell_reference(self, found: re.Match[str]) -> str:
        # The image or the script may set others.
        return self.variables.get(found.group(1) or found.group(2), _UNREADABLE)


def parse_share(text: str, whole: float) -> float | None:
    """Parse a positive number as a share of `whole`; None if it is none or larger."""
    share = float(text) / whole if _SHARE.fullmatch(text) else 0.0
    return share if 0 < share <= 1 else None


def _split(text: str) -> list[str]:
    return text.replace('"', " ").replace("'", " ").split()


def _read_memory(spec: ContainerSpec, kind: str) -> int:
    """Return a container's memory limit or request, 0 for none or an invalid one."""
    stated = getattr(spec.resources, kind, None) or {}
    try:
        return max(0, min(parse_memory_bytes(str(stated.get("memory") or 0)), MAXIMUM_QUANTITY))
    except QuantityError:
        return 0

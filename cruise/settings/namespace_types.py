"""The types of settings that list or select namespaces."""

import re

from cruise.domain.namespace_patterns import check_namespace_pattern
from cruise.domain.resources import quote_text
from cruise.domain.scheduling import LabelSelector
from cruise.errors import BadInputError
from cruise.kube_json.objects.scheduling import parse_selector
from cruise.settings.value_types import TEXT, InvalidValueError, ValueType, read_names

_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)


def create_excluded_namespaces_type(protected: frozenset[str]) -> ValueType:
    """Names and patterns of namespaces, added to the `protected` ones; `!NAME` removes one of these."""

    def read(value: object) -> frozenset[str]:
        stated = read_names(value)
        removed = {name[1:] for name in stated if name.startswith("!")}
        for name in sorted(removed - protected):
            raise InvalidValueError(
                f'"!{name}" removes nothing: only {", ".join(sorted(protected))} are excluded by default'
            )
        added = [name for name in stated if not name.startswith("!")]
        return (protected - removed) | _read_namespace_patterns(added)

    return ValueType("a list of namespaces or patterns of their names", "monitoring,openshift-*", read)


def _read_namespace_patterns(value: object) -> frozenset[str]:
    names = read_names(value)
    for name in sorted(names):
        try:
            check_namespace_pattern(name)
        except ValueError as error:
            raise InvalidValueError(str(error)) from error
    return names


def _read_namespace_selector(value: object) -> LabelSelector:
    text = str(TEXT.read(value))
    try:
        selector = parse_selector(text)
    except BadInputError as error:
        raise InvalidValueError(str(error)) from error
    for one in selector.requirements:
        if not _LABEL_KEY.fullmatch(one.key) or not all(map(_LABEL_VALUE.fullmatch, one.values)):
            raise InvalidValueError(
                f"{quote_text(text)} matches no namespace: {quote_text(one.key)} can have no such label"
            )
    return selector


NAMESPACE_PATTERNS = ValueType(
    "a list of namespaces or patterns of their names", "payments,team-*", _read_namespace_patterns
)
NAMESPACE_SELECTOR = ValueType("a label selector of namespaces", "team=payments,tier!=test", _read_namespace_selector)

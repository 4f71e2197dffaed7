"""Settings that have one of a few values, and the forms that read them."""

from enum import StrEnum

from cruise.adapters.kubelets.settings import Access, Endpoint
from cruise.decisions.sizing.headroom.choosing import MODELS
from cruise.domain.notices import Topic
from cruise.domain.policy import (
    AdmissionSize,
    Consolidation,
    MemoryLimits,
    Mode,
    NodeAutoscaling,
    OomReaction,
)
from cruise.domain.rules import RULES as RULE_SETS
from cruise.settings import forms


class ApiAuthentication(StrEnum):
    """By what the API knows who asks: a token of its own, or the API server."""

    TOKEN = "token"
    KUBERNETES = "kubernetes"


class UsageFrom(StrEnum):
    """Where usage is read: from Prometheus where one is set, else from kubelets where that is granted."""

    AUTO = "auto"
    PROMETHEUS = "prometheus"
    KUBELETS = "kubelets"


class PublishedVpas(StrEnum):
    """Whether sizes are shown as VerticalPodAutoscalers, and the update mode that these state."""

    NONE = "none"
    OFF = "off"
    INITIAL = "initial"


class NotifyFormat(StrEnum):
    """In which form notifications are sent."""

    GENERIC = "generic"
    SLACK = "slack"
    TEAMS = "teams"


class HttpTls(StrEnum):
    """Whether the API is served with TLS: by default wherever other machines reach it."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


MODE = forms.choice("a mode", [(mode.label, mode) for mode in Mode if mode is not Mode.OFF])
RULES = forms.choice("a set of rules", [(rules.name, rules) for rules in RULE_SETS])
HEADROOM = forms.choice("a headroom model", [(model, model) for model in MODELS])
MEMORY_LIMITS = forms.choice("a choice of memory limits", [(one.value, one) for one in MemoryLimits])
OOM_REACTION = forms.choice("a reaction", [(reaction.value, reaction) for reaction in OomReaction])
NODE_AUTOSCALER = forms.choice("a node autoscaler", [(one.value, one) for one in NodeAutoscaling])
CONSOLIDATE = forms.choice("a way to consolidate", [(one.value, one) for one in Consolidation])
ADMISSION_SIZE = forms.choice("a size", [(one.value, one) for one in AdmissionSize])
USAGE_SOURCE = forms.choice("a source of usage", [(one.value, one) for one in UsageFrom])
KUBELET_ACCESS = forms.choice("a way to kubelets", [(one.value, one) for one in Access])
KUBELET_ENDPOINT = forms.choice("what kubelets tell", [(one.value, one) for one in Endpoint])
HTTP_TLS = forms.choice("a use of TLS", [(one.value, one) for one in HttpTls])
API_AUTHENTICATION = forms.choice("a way of authentication", [(one.value, one) for one in ApiAuthentication])
PUBLISH_VPAS = forms.choice("a way to publish", [(one.value, one) for one in PublishedVpas])
NOTIFY_FORMAT = forms.choice("a form of notifications", [(one.value, one) for one in NotifyFormat])
NOTIFY_TOPICS = forms.several("topics of notifications", [(one.value, one) for one in Topic])

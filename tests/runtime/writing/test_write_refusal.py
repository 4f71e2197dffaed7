import pytest

from cruise.domain.actions import ReasonCode, TaintNode
from cruise.domain.cluster import Pod
from cruise.errors import RefusedError, ThrottledError
from cruise.runtime.writing.api_answers import WriteRefusal, classify_refusal, is_disruption_budget_refusal
from tests.simulation.scenes import evict, resize

POD = Pod("shop", "web-1", "uid", (), node="n1")
RESIZE, EVICT, TAINT = resize(POD), evict(POD), TaintNode("n1", ReasonCode.OVERLOADED)


@pytest.mark.parametrize("action", [RESIZE, EVICT, TAINT])
@pytest.mark.parametrize("cause", ["Forbidden", "Unauthorized"])
def test_a_missing_right_is_about_the_verb(action, cause):
    assert classify_refusal(action, RefusedError("no", cause)) == WriteRefusal(ReasonCode.FORBIDDEN, for_verb=True)


@pytest.mark.parametrize(
    ("action", "cause", "expected"),
    [
        (EVICT, "MultipleDisruptionBudgets", WriteRefusal(ReasonCode.NOT_EVICTABLE)),
        (EVICT, "DisruptionBudget", WriteRefusal(ReasonCode.POD_DISRUPTION_BUDGET)),
        (EVICT, "AdmissionDenied", WriteRefusal(ReasonCode.RESIZE_REFUSED)),
        (TAINT, "AdmissionDenied", WriteRefusal(ReasonCode.RESIZE_REFUSED)),
        (RESIZE, "QuotaExceeded", WriteRefusal(ReasonCode.QUOTA_EXCEEDED)),
        (RESIZE, "NodeCapacity", WriteRefusal(ReasonCode.RESIZE_INFEASIBLE, ReasonCode.RESIZE_INFEASIBLE)),
        (RESIZE, "LimitRange", WriteRefusal(ReasonCode.RESIZE_REFUSED, ReasonCode.RESIZE_REFUSED)),
        (RESIZE, "something new", WriteRefusal(ReasonCode.RESIZE_REFUSED, ReasonCode.RESIZE_REFUSED)),
    ],
)
def test_refusals_by_cause(action, cause, expected):
    assert classify_refusal(action, RefusedError("no", cause)) == expected


def test_a_budgets_refusal_is_distinguished_from_an_overloaded_server():
    assert is_disruption_budget_refusal(EVICT, ThrottledError("no", None, "DisruptionBudget"))
    assert is_disruption_budget_refusal(EVICT, ThrottledError("no", 10, "DisruptionBudget"))
    assert is_disruption_budget_refusal(EVICT, ThrottledError("no"))
    assert not is_disruption_budget_refusal(EVICT, ThrottledError("too many requests", 1))
    assert not is_disruption_budget_refusal(EVICT, ThrottledError("failed calling webhook", None, "WebhookFailed"))
    assert not is_disruption_budget_refusal(RESIZE, ThrottledError("no", None, "DisruptionBudget"))

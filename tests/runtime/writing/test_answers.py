import pytest

from cruise.domain.actions import Reason, TaintNode
from cruise.domain.cluster import Pod
from cruise.errors import Refused, Throttled
from cruise.runtime.writing.answers import Refusal, forbids_disruption, refusal_of
from tests.simulation.scenes import evict, resize

POD = Pod("shop", "web-1", "uid", (), node="n1")
RESIZE, EVICT, TAINT = resize(POD), evict(POD), TaintNode("n1", Reason.OVERLOADED)


@pytest.mark.parametrize("action", [RESIZE, EVICT, TAINT])
@pytest.mark.parametrize("cause", ["Forbidden", "Unauthorized"])
def test_a_missing_right_is_about_the_verb(action, cause):
    assert refusal_of(action, Refused("no", cause)) == Refusal(Reason.FORBIDDEN, of_verb=True)


@pytest.mark.parametrize(
    ("action", "cause", "expected"),
    [
        (EVICT, "MultipleDisruptionBudgets", Refusal(Reason.UNMOVABLE)),
        (EVICT, "DisruptionBudget", Refusal(Reason.DISRUPTION_BUDGET)),
        (EVICT, "AdmissionDenied", Refusal(Reason.REFUSED)),
        (TAINT, "AdmissionDenied", Refusal(Reason.REFUSED)),
        (RESIZE, "QuotaExceeded", Refusal(Reason.QUOTA)),
        (RESIZE, "NodeCapacity", Refusal(Reason.RESIZE_INFEASIBLE, Reason.RESIZE_INFEASIBLE)),
        (RESIZE, "LimitRange", Refusal(Reason.REFUSED, Reason.REFUSED)),
        (RESIZE, "something new", Refusal(Reason.REFUSED, Reason.REFUSED)),
    ],
)
def test_refusals_by_cause(action, cause, expected):
    assert refusal_of(action, Refused("no", cause)) == expected


def test_a_budgets_refusal_is_distinguished_from_an_overloaded_server():
    assert forbids_disruption(EVICT, Throttled("no", None, "DisruptionBudget"))
    assert forbids_disruption(EVICT, Throttled("no", 10, "DisruptionBudget"))
    assert forbids_disruption(EVICT, Throttled("no"))
    assert not forbids_disruption(EVICT, Throttled("too many requests", 1))
    assert not forbids_disruption(EVICT, Throttled("failed calling webhook", None, "WebhookFailed"))
    assert not forbids_disruption(RESIZE, Throttled("no", None, "DisruptionBudget"))

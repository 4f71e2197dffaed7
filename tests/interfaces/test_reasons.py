from cruise.domain.actions import ReasonCode
from cruise.domain.reasons import ReasonDetailCode
from cruise.interfaces.reasons import DETAIL_DESCRIPTIONS, REASON_DESCRIPTIONS, describe_detail, describe_reason


def test_every_reason_has_its_own_description():
    assert set(REASON_DESCRIPTIONS) == set(ReasonCode)
    assert len(set(REASON_DESCRIPTIONS.values())) == len(REASON_DESCRIPTIONS)


def test_every_detail_has_its_own_description_with_one_placeholder_for_its_subject():
    assert set(DETAIL_DESCRIPTIONS) == set(ReasonDetailCode)
    assert len(set(DETAIL_DESCRIPTIONS.values())) == len(DETAIL_DESCRIPTIONS)
    assert {detail: words for detail, words in DETAIL_DESCRIPTIONS.items() if words.count("{}") > 1} == {}


def test_codes_are_worded_and_other_details_stay():
    parts = [
        ReasonDetailCode.GROWTH_PENDING,
        ReasonDetailCode.MEMORY_LIMIT_STAYS.create("app"),
        "kubelet 1.32",
        ReasonDetailCode.PROTECTED.create("a: b"),
    ]
    assert describe_detail("; ".join(parts)) == (
        "its increase waits for capacity; app: the memory limit cannot be removed; kubelet 1.32; annotation a: b"
    )
    assert describe_detail('pods "web" not found; try: later') == 'pods "web" not found; try: later'
    assert (
        describe_reason(ReasonCode.NOT_EVICTABLE, ReasonDetailCode.RANKING_NEVER)
        == "it may not be evicted (eviction-ranking never)"
    )


def test_a_detail_is_added():
    assert describe_reason(ReasonCode.NO_STATISTICS, "app") == "it has no statistics (app)"

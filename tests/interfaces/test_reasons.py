from cruise.domain.actions import Reason
from cruise.domain.details import Detail
from cruise.interfaces.reasons import DETAILS, WORDS, detail_words, in_words


def test_every_reason_has_words_of_its_own():
    assert set(WORDS) == set(Reason)
    assert len(set(WORDS.values())) == len(WORDS)


def test_every_detail_has_words_of_its_own_with_a_place_for_its_subject_alone():
    assert set(DETAILS) == set(Detail)
    assert len(set(DETAILS.values())) == len(DETAILS)
    assert {detail: words for detail, words in DETAILS.items() if words.count("{}") > 1} == {}


def test_codes_are_worded_and_other_details_stay():
    parts = [Detail.GROWTH_WAITS, Detail.MEMORY_LIMIT_STAYS.of("app"), "kubelet 1.32", Detail.PROTECTED.of("a: b")]
    assert detail_words("; ".join(parts)) == (
        "what would grow waits for room; app: the memory limit cannot be removed; kubelet 1.32; annotation a: b"
    )
    assert detail_words('pods "web" not found; try: later') == 'pods "web" not found; try: later'
    assert in_words(Reason.UNMOVABLE, Detail.RANKING_NEVER) == "it may not be evicted (eviction-ranking never)"


def test_a_detail_is_added():
    assert in_words(Reason.NO_STATISTICS, "app") == "there are no statistics of it (app)"

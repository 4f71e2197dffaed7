from cruise.domain.actions import Reason
from cruise.interfaces.reasons import WORDS, in_words


def test_every_reason_has_words_of_its_own():
    assert set(WORDS) == set(Reason)
    assert len(set(WORDS.values())) == len(WORDS)


def test_a_detail_is_added():
    assert in_words(Reason.NO_STATISTICS, "app") == "there are no statistics of it (app)"

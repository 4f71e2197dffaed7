from cruise.app.demo.frames import sizes_text
from cruise.domain.resources import MEBIBYTE, Resources

BEFORE = Resources(500, 128 * MEBIBYTE)


def test_what_stays_as_it_is_is_no_event():
    assert sizes_text(BEFORE, Resources(500, 64 * MEBIBYTE)) == "128Mi → 64Mi"
    assert sizes_text(BEFORE, Resources(250, 64 * MEBIBYTE)) == "500m → 250m, 128Mi → 64Mi"
    assert sizes_text(BEFORE, BEFORE) == "its limits"


def test_without_what_was_before_it_has_what_was_written():
    assert sizes_text(None, BEFORE) == "500m, 128Mi"

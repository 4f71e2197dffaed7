from cruise.app.demo_frames import format_size_change
from cruise.domain.resources import MEBIBYTE, Resources

BEFORE = Resources(500, 128 * MEBIBYTE)


def test_an_unchanged_size_is_not_an_event():
    assert format_size_change(BEFORE, Resources(500, 64 * MEBIBYTE)) == "128Mi → 64Mi"
    assert format_size_change(BEFORE, Resources(250, 64 * MEBIBYTE)) == "500m → 250m, 128Mi → 64Mi"
    assert format_size_change(BEFORE, BEFORE) == "its limits"


def test_without_what_was_before_it_has_what_was_written():
    assert format_size_change(None, BEFORE) == "500m, 128Mi"

from hypothesis import given
from hypothesis import strategies as st

from cruise.interfaces.backtest.pareto_chart import LabelBox, place_labels

RADIUS, HEIGHT = 5.0, 14.0
ROOM = LabelBox(50, 2, 295, 280)
MARKS = st.lists(
    st.tuples(st.floats(55, 335), st.floats(30, 270), st.sampled_from([40.0, 90.0, 140.0])), min_size=1, max_size=9
)


def placed(marks):
    return place_labels(
        [(x, y) for x, y, _ in marks], [width for *_, width in marks], HEIGHT, [RADIUS] * len(marks), ROOM
    )


@given(MARKS)
def test_no_label_covers_another_or_a_mark_or_leaves_the_picture(marks):
    boxes = placed(marks)
    rings = [LabelBox(x - RADIUS, y - RADIUS, 2 * RADIUS, 2 * RADIUS) for x, y, _ in marks]
    for at, box in enumerate(boxes):
        assert ROOM.contains(box)
        assert not any(box.overlaps(other) for other in boxes[:at])
        assert not any(box.overlaps(ring) for ring in rings)


@given(MARKS)
def test_each_mark_has_a_label_of_its_width(marks):
    assert [box.width for box in placed(marks)] == [width for *_, width in marks]


def test_a_label_is_right_of_its_mark_and_left_of_it_at_the_edge():
    right, left = placed([(100, 100, 40.0), (330, 200, 40.0)])
    assert right.x == 100 + RADIUS + 4
    assert left.x + left.width == 330 - RADIUS - 4
    assert right.y + HEIGHT / 2 == 100


def test_a_name_is_nearer_to_its_mark_than_to_any_other():
    # On the right of the first is the second.
    first, _ = placed([(150, 150, 90.0), (170, 150, 90.0)])
    assert abs(first.x + first.width - 150) < abs(first.x - 170)


def test_of_marks_in_one_place_all_names_can_be_read():
    boxes = placed([(200, 150, 90.0)] * 9)
    assert len({(box.x, box.y) for box in boxes}) == 9


def test_a_label_is_drawn_even_without_free_space():
    [box] = place_labels([(5, 5)], [100.0], HEIGHT, [RADIUS], LabelBox(0, 0, 10, 10))
    assert (box.x, box.width) == (14, 100.0)


def test_boxes_that_share_an_edge_do_not_overlap():
    assert not LabelBox(0, 0, 10, 10).overlaps(LabelBox(10, 0, 10, 10))
    assert LabelBox(0, 0, 10, 10).overlaps(LabelBox(9.9, 9.9, 10, 10))
    assert LabelBox(0, 0, 10, 10).get_nearest_point(20, 5) == (10, 5)

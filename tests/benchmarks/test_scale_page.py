"""The picture of scale: every fit of the plan's record that lies on a line has its mark."""

from benchmarks import records, scale_page
from benchmarks.race import Row


def row(way, features, rows, classes):
    case = {"way": way, "features": features, "rows": rows, "classes": classes}
    points = {"case": case, "seconds": 2.0, "megabytes": 512.0, "answer": 1e-3}
    return Row("plan", "fit", "data", "plan", 2.0, 1.0, None, "same", points=points)


def test_each_line_has_its_own_fits():
    for line in scale_page.LINES:
        rows = line.rows(1e6)
        (mark,) = scale_page._fits(
            [row(line.name, line.features, rows, 10**6), row(line.name, line.features, 7, 10**6)]
        )
        assert mark == (line.name, 10**6, (2.0, 0.5, 1e-3))
    assert not list(scale_page._fits([row("softmax", 65, 2 * 10**6, 10**6), row("other", 64, 2 * 10**6, 10**6)]))


def test_the_record_marks_more_than_one_line():
    record = records.load("plan")
    assert {"softmax", "sampled softmax", "centroids", "kNN bits"} <= {m.name for m in scale_page._fits(record["rows"])}


def test_the_picture_is_drawn_from_the_records():
    assert len(scale_page.picture().axes) == len(scale_page.PANELS)

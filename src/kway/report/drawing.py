"""Pictures drawn: sketch -> matplotlib Figure -> <svg> element for the page, and files where a folder is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from kway.data.outputs.atomic import replacing
from kway.report import curves, images, matrices, planes, scores
from kway.report.export import page_svg, save, svg_document
from kway.report.sketches import DrawnPicture, Picture

FIGURES: dict[str, Any] = {  # name -> function that returns a Figure
    function.__name__: function
    for function in (
        scores.leaderboard, scores.reliability, curves.cross_validation, curves.tradeoff, curves.history,
        matrices.confusion_of, planes.plane_regions, images.weight_templates, images.where_it_looks,
        images.worst_mistakes,
    )
}  # fmt: skip


def drawn_picture(picture: Picture, folder: Path | None = None) -> DrawnPicture:
    """The picture for a page; NAME.svg and NAME.png of it also into `folder`. One that fails says so in its text."""
    name, title, text, sketch = picture
    if sketch is None:
        return DrawnPicture(name, title, text)
    try:
        figure: Figure = FIGURES[sketch.figure](**sketch.arguments)
        document = svg_document(figure)
    except Exception as error:  # a picture is not worth losing the report for
        return DrawnPicture(name, title, f"could not be drawn: {error}")
    lost = None
    if folder is not None:
        try:
            folder.mkdir(exist_ok=True)
            with replacing(folder / f"{name}.svg") as draft:
                draft.write_bytes(document)
            save(figure, folder / f"{name}.png")
        except OSError as error:  # nor is a file of it
            lost = error.errno or 0, error.strerror or str(error), str(error.filename or folder)
    wide = round(112 * figure.get_figwidth())  # a small one is not blown up until its words are larger than the page's
    return DrawnPicture(name, title, text, page_svg(document, title), wide, lost)

"""What a reader would complain about, measured on the drawn figure: text cut off, text over text, text too small."""

from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text


class Looks:
    """A figure after its layout has been done: everything written on it, with boxes in pixels."""

    def __init__(self, figure):
        FigureCanvasAgg(figure).draw()
        hidden = set()
        for axes in figure.axes:
            if not axes.get_visible():
                hidden |= {id(t) for t in axes.findobj(Text)}
            for axis in (axes.xaxis, axes.yaxis):  # ticks beyond the limits exist but are not drawn
                ticks = axis._update_ticks() if axes.axison else []
                shown = {id(label) for tick in ticks for label in (tick.label1, tick.label2)}
                hidden |= {id(t) for t in axis.get_ticklabels(which="both") if id(t) not in shown}
        texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip() and id(t) not in hidden]
        self.page = figure.bbox
        self.boxes = [(t.get_text(), t.get_window_extent()) for t in texts]
        self.smallest = min((t.get_fontsize() for t in texts), default=99)

    def clipped(self, tolerance=1.5):
        """Texts that leave the page."""
        low, high = self.page.min - tolerance, self.page.max + tolerance
        return [text for text, box in self.boxes if (box.min < low).any() or (box.max > high).any()]

    def collisions(self, tolerance=1.5):
        """Pairs of texts that lie over each other."""
        return [
            (a, b)
            for (a, p), (b, q) in combinations(self.boxes, 2)
            if min(p.x1, q.x1) - max(p.x0, q.x0) > tolerance and min(p.y1, q.y1) - max(p.y0, q.y0) > tolerance
        ]


@pytest.fixture(scope="session")
def looks():
    return Looks

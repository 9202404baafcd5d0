"""Draw the rooms of the house into docs/design.md, and list every module in docs/design/modules.md:
`python -m tools.house`.

A floor is a row of halls and stands on the floors below it; what lies inside a hall is read from its folders, and what
a module is from its docstring, so a new room needs no drawing by hand.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
KWAY = ROOT / "src" / "kway"
PAGE = ROOT / "docs" / "design.md"
MAP = ROOT / "docs" / "design" / "modules.md"
WIDTH, EDGE, GAP, INSIDE = 860, 10, 12, 8
HEAD, ROOM = 52, 26  # heights: a hall's name and note, a line of rooms


class Hall(NamedTuple):
    """One box: its name (a folder of src/kway, or what stands there), what it is for, its share of the width."""

    name: str
    note: str
    columns: int = 1
    share: float = 1.0


FLOORS = [
    [Hall("cli", "one file a verb"), Hall("fitted", "kway.fit"), Hall("report", "figures, the page")],
    [Hall("select", "compare, tune, the main job")],
    [
        Hall("confidence", "temperature, sets, “unknown”"),
        Hall("featured, pipelined, mapped", "features or a map, joined with a classifier"),
    ],
    [Hall("neighbors", "metric × index × vote", share=0.45), Hall("linear", "loss × penalty × solver", 2)],
    [Hall("base", "score rows, keep k, vote"), Hall("planning", "what a job will cost")],
    [
        Hall("search", "the k best rows of a query", 3, 2.0),
        Hall("store", "model files"),
        Hall("datasets", "by name", 1, 0.5),
    ],
    [Hall("data", "the gate, the one reader", 1, 0.5), Hall("compute", "threads", 3, 1.5)],
    [
        Hall(
            "progress, parameters, tables, log_loss, soft_max, class_scores, light_imports, lazy_names, errors",
            "what everything may use",
        )
    ],
]


def rooms(hall: str) -> list[str]:
    """The folders inside a hall, as `hall/room`."""
    return sorted(str(init.parent.relative_to(KWAY)) for init in (KWAY / hall).glob("*/**/__init__.py"))


class Drawing:
    """Boxes and words, as far as they are drawn."""

    def __init__(self) -> None:
        self.band: list[str] = []
        self.box: list[str] = []
        self.main: list[str] = []
        self.head: list[str] = []
        self.note: list[str] = []
        self.room: list[str] = []

    def hall(self, hall: Hall, x: float, y: float, width: float, height: float) -> None:
        """A box with its name, its note, and the rooms inside."""
        into = self.main if hall.name == "base" else self.box
        into.append(_box(x, y, width, height, 6))
        self.head.append(_text(x + width / 2, y + 22, hall.name))
        self.note.append(_text(x + width / 2, y + 40, hall.note))
        wide = (width - INSIDE * (hall.columns + 1)) / hall.columns
        for i, room in enumerate(rooms(hall.name)):
            left = x + INSIDE + (i % hall.columns) * (wide + INSIDE)
            top = y + HEAD + (i // hall.columns) * ROOM
            self.box.append(_box(left, top, wide, ROOM - 4, 4))
            self.room.append(_text(left + wide / 2, top + 15, room))


def _box(x: float, y: float, width: float, height: float, radius: int) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:.4g}" height="{height:g}" rx="{radius}"/>'


def _text(x: float, y: float, words: str) -> str:
    return f'<text x="{x:.4g}" y="{y:g}">{words}</text>'


def _lines(hall: Hall) -> int:
    return -(-len(rooms(hall.name)) // hall.columns)


def picture() -> str:
    """The SVG, a line a layer."""
    drawn, y = Drawing(), float(EDGE)
    for floor in FLOORS:
        lines = max(_lines(hall) for hall in floor)
        height = HEAD + lines * ROOM + (INSIDE if lines else 0)
        drawn.band.append(_box(EDGE, y, WIDTH - 2 * EDGE, height + 2 * INSIDE, 8))
        share = (WIDTH - 4 * EDGE - GAP * (len(floor) - 1)) / sum(hall.share for hall in floor)
        x = 2.0 * EDGE
        for hall in floor:
            drawn.hall(hall, x, y + INSIDE, share * hall.share, height)
            x += share * hall.share + GAP
        y += height + 3 * INSIDE
    said = "; ".join(" and ".join(hall.name for hall in floor) for floor in FLOORS)
    return "\n".join(
        [
            f'<svg viewBox="0 0 {WIDTH} {y:g}" role="img" aria-label="The rooms of the house, a floor standing on '
            f'those below it: {said}.">',
            f'<g class="band">{"".join(drawn.band)}</g>',
            f'<g class="box main">{"".join(drawn.main)}</g><g class="box">{"".join(drawn.box)}</g>',
            f'<g class="head">{"".join(drawn.head)}</g><g class="note">{"".join(drawn.note)}</g>'
            f"<g>{''.join(drawn.room)}</g>",
            "</svg>",
        ]
    )


def drawn_into(page: str) -> str:
    """The page with the picture as it is now: the drawing under "The house"."""
    house = page.index("## The house")
    start = page.index("<svg", house)
    end = page.index("</svg>", start) + len("</svg>")
    return page[:start] + picture() + page[end:]


def listed() -> str:
    """The page of all modules: a section a room, a line a module, as its docstring begins."""
    said = ["# Every module", "", "A line a module, as its docstring begins. [The picture](../design.md#the-house)."]
    for folder in sorted(init.parent for init in KWAY.rglob("__init__.py")):
        said += ["", f"## {folder.relative_to(KWAY.parent)}", "", _purpose(folder / "__init__.py"), ""]
        said += [f"- `{path.stem}`: {_purpose(path)}" for path in sorted(folder.glob("[!_]*.py"))]
    return "\n".join(said) + "\n"


def _purpose(module: Path) -> str:
    """The first paragraph of a docstring's own words, without markdown's signs."""
    said = (ast.get_docstring(ast.parse(module.read_text())) or "").split("\n\n")[0]
    return re.sub(r"([*<>|$\\[\]]|\b_|_\b)", r"\\\1", " ".join(said.split()))


if __name__ == "__main__":
    PAGE.write_text(drawn_into(PAGE.read_text()))
    MAP.write_text(listed())

"""A line a column on stderr before the work begins: how it was read, an example, what it became.

5 columns of offers.csv as they were read:
  price   number    "1.234,5 €"   decimal comma, € left out; standardised (mean 0, standard deviation 1)
  code    id        "a7-33f"      dropped: codes such as 'a7-33f', each in one row only: they name the rows
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from kway.tables import clipped

if TYPE_CHECKING:
    from kway.data.features.features import Features
    from kway.select.train_test import Parts

_MOST = 12  # lines
_WIDEST = 24  # letters of a name


def column_lines(features: Features, parts: Parts, listed: str) -> list[str]:
    """The lines, no wider than the terminal; the first few, and a count of the others by kind, where there are many.

    `listed` says where the others can be found.
    """
    from collections import Counter

    from kway.report.columns import columns_read

    read = columns_read(features, parts)
    notes = [f"  note: {note}" for note in parts.notes]
    if not features.is_table_:
        return [f"{parts.name} as it was read: {read[0].kind}, {read[0].done}", *notes]
    many = "1 column" if len(read) == 1 else f"{len(read):,} columns"
    lines = [f"{many} of {parts.name} as {'it was' if len(read) == 1 else 'they were'} read:"]
    shown = [(c.column, c.kind, f'"{c.example}"' if c.example else "", c.done) for c in read[:_MOST]]
    widths = [min(_WIDEST, max(len(row[j]) for row in shown)) for j in range(3)]
    edge = shutil.get_terminal_size((120, 24)).columns
    for row in shown:
        cells = [clipped(cell, width).ljust(width) for cell, width in zip(row, widths)]
        lines.append(clipped("  " + "  ".join([*cells, row[3]]), edge))
    rest = Counter(c.kind for c in read[_MOST:])
    if rest:
        counted = ", ".join(f"{n:,} {kind}" for kind, n in rest.most_common())
        lines.append(f"  and {sum(rest.values()):,} more: {counted}{listed}")
    return lines + notes

"""Where is the nearest post office? One question, every index, one answer.

    python examples/post_office.py

30,000 places are in the package; with KWAY_DATA set, all 41,914 are used. The map goes to post_office.png.
"""

from kway.data.datasets.post_offices import post_offices
from kway.neighbors.post_office import HOBOKEN, ask
from kway.report.regions import landmark_cells

offices = post_offices()
answers, agree = ask(offices, *HOBOKEN)
for a in answers:
    print(f"{a.index:10} {a.name} {a.zip}  {a.km:.3f} km  {a.touched:6,.0f} places measured  {a.milliseconds:.2f} ms")
print("all agree" if agree else "they do not agree")
landmark_cells(offices.points, query=HOBOKEN).savefig("post_office.png", dpi=110)

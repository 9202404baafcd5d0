"""What a job will cost, before it starts; `kway.plan` is the function.

costs.py   Size, and one formula per approach (parameters, bytes, operations, seconds), checks of a fit
rates.py   how fast this machine is: two rates, measured in under a second
plan.py    plan(): every approach for one size, and which is advised
"""

from kway.planning.costs import Cost
from kway.planning.plan import Plan, plan
from kway.planning.rates import Rates

__all__ = ["Cost", "Plan", "Rates", "plan"]

"""The cost of a job before it starts; `kway.plan` is the public function.

costs.py   Size, one formula per approach (parameters, bytes, operations, seconds), and the checks before a fit
rates.py   the speed of this machine: two rates, measured in under a second
plan.py    plan(): the costs of all approaches for one size, and the advised one
"""

from kway.planning.costs import Cost
from kway.planning.plan import Plan, plan
from kway.planning.rates import Rates

__all__ = ["Cost", "Plan", "Rates", "plan"]

"""What a job will cost, before it starts; `kway.plan` is the function.

costs.py   Size, and one formula per approach: parameters, bytes, operations, seconds
rates.py   how fast this machine is: two rates, measured in under a second
plan.py    plan(): every approach for one size, and which is advised
guard.py   what a fit checks before it starts: memory, and whether to sample classes
"""

from kway.planning.costs import Cost
from kway.planning.plan import Plan, plan
from kway.planning.rates import Rates

__all__ = ["Cost", "Plan", "Rates", "plan"]

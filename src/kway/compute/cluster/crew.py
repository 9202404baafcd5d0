"""Crew: members made by functions, all asked the same; how they live is the crew's affair.

crew = make_crew([maker_0, maker_1, ...])
crew.ask("nearest", queries, k) -> one answer a member, in order, None where a member is lost
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any


class Crew(ABC):
    """Members that answer."""

    place: str  # where the members live, in words

    @abstractmethod
    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """What `member.method(*arguments)` gives, for every member in order; None where a member is lost."""

    @abstractmethod
    def close(self) -> None:
        """Let the members go."""


class LocalCrew(Crew):
    """Members in this process, asked one after another: each uses all cores."""

    place = "in this process"

    def __init__(self, makers: Sequence[Callable[[], Any]]) -> None:
        self.members = [make() for make in makers]

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """One after another."""
        return [getattr(member, method)(*arguments) for member in self.members]

    def close(self) -> None:
        """Nothing is held elsewhere."""
        self.members = []

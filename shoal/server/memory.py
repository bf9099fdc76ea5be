"""What was decoded lately, so that whoever looks at a running experiment again and again pays for what is new."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.store.drawing import Outlines
    from shoal.store.heads import Heads

MOST_REPORTS = 100


class Memory:
    """Each part is made when somebody first asks for a metric: that loads numpy."""

    def __init__(self) -> None:
        self._reports: OrderedDict[tuple[str, int], dict[str, Any]] = OrderedDict()

    @cached_property
    def heads(self) -> Heads:
        from shoal.store.heads import Heads

        return Heads()

    @cached_property
    def outlines(self) -> Outlines:
        from shoal.store.drawing import Outlines

        return Outlines()

    def forget(self, streams: Iterable[str]) -> None:
        """These streams are removed."""
        if "heads" in self.__dict__:  # else nothing was decoded
            self.heads.forget(streams)

    def report(self, of: tuple[str, int], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What is told of the ranks of an experiment (uid, revision) whose points do not change any more."""
        known = self._reports.get(of)
        if known is None:
            known = self._reports[of] = make()
            while len(self._reports) > MOST_REPORTS:
                self._reports.popitem(last=False)
        return known

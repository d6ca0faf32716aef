"""How one call of a model is computed."""

from dataclasses import dataclass

from pyg_incremental.call.roles import Roles
from pyg_incremental.call.site import CallSite
from pyg_incremental.call.traced import Traced
from pyg_incremental.program.origin import in_brackets
from pyg_incremental.program.steps import Program


@dataclass(frozen=True)
class CallPlan:
    """How a call is computed.

    Attributes:
        site: The call.
        roles: What its tensors are.
        traced: The program, and how its outputs are put together.
        fallback: Why the whole model runs as one step, or an empty string.
    """

    site: CallSite
    roles: Roles
    traced: Traced
    fallback: str

    @property
    def program(self) -> Program:
        """The program that the call was traced to."""
        return self.traced.program

    @property
    def mode(self) -> str:
        """`'incremental'`, `'mixed'` or `'full pass'`."""
        return (
            "full pass" if self.fallback else "mixed" if self.program.whole_steps else "incremental"
        )

    @property
    def why(self) -> list[str]:
        """What runs on all rows, why, and which line of the model that is."""
        if self.fallback:
            return [self.fallback]
        steps = [s for s in self.program.whole_steps if s.reason]
        return [s.reason + in_brackets(self.program.place_of(s.output)) for s in steps]

"""How one call of a model is computed."""

from dataclasses import dataclass

from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.roles import Roles, is_label
from pyg_incremental.call.said import Role
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

    site: BoundCall
    roles: Roles
    traced: Traced
    fallback: str

    @property
    def program(self) -> Program:
        """The program that the call was traced to."""
        return self.traced.program

    @property
    def understood(self) -> dict[str, Role]:
        """What the arguments of the call are, by name."""
        roles = self.roles
        found: dict[str, Role] = {}
        for relation in roles.given:
            ends = tuple(dict.fromkeys(k for k in (relation.source, relation.target) if k))
            asked = self.site.asked.get(relation.graph)
            found |= dict.fromkeys(asked.names, Role("ids", ends)) if asked else {
                relation.graph: Role("ids" if is_label(relation.graph) else "graph", ends)
            }  # fmt: skip
        handed = roles.handed_in.nodes
        found |= {n: Role("node", (kind,) if kind else ()) for n, kind in handed.items()}
        edges = {n: graph for n, graph in roles.edges.items() if n not in roles.ids}
        found |= {n: Role("edge", (self._shown(graph),)) for n, graph in edges.items()}
        found |= {n: Role("ids", (k,) if k else ()) for n, k in roles.ids.items()}
        return found | {n: Role("constant") for n in roles.others if n not in roles.ids}

    def _shown(self, graph: str) -> str:
        """A graph as users name it."""
        return self.site.asked[graph].key if graph in self.site.asked else graph

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

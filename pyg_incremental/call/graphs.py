"""Which tensors of a call are graphs."""

from collections.abc import Mapping

from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.said import Role


def graphs_of(site: BoundCall, said: Mapping[str, Role] | None = None) -> list[str]:
    """The names of the tensors of a call that are graphs; `said` goes before their looks."""
    told = {name: role.what == "graph" for name, role in (said or {}).items()}
    return [n for n in site.names if told.get(n, site.is_graph(n))]

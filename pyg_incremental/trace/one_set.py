"""Objects that hold rows of the same nodes: several views of them, or one at several times."""

from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.roles import classify
from pyg_incremental.call.said import Role
from pyg_incremental.errors import InvalidDeltaError, UnsupportedModelError
from pyg_incremental.trace.edge_order import runs
from pyg_incremental.trace.probe import probe_of


def on_one_set(site: BoundCall) -> tuple[BoundCall, dict[str, Role]]:
    """The call with its objects on one set of nodes, if the model takes their nodes for the same.

    It does where it runs on objects of the same number of nodes, and not on such of different
    numbers, because it adds rows of both, say. Where it runs on both, each has nodes of its own.

    Returns:
        The call, and the roles of what the objects hold; nothing of these where they stay apart.
    """
    apart = [held for held in site.objects.values() if held.kind]
    if len(apart) < 2 or len(apart) != len(site.objects):
        return site, {}
    joined = site.on(site.model)
    names = {name for held in apart for name in held.places}
    joined.keys = {name: key for name, key in site.keys.items() if name not in names}
    told: dict[str, Role] = {}
    for held in apart:
        graphs = [name for name in held.places if site.is_graph(name)]
        of_edges = Role("edge", tuple(graphs))
        for name, level in held.levels.items():
            told |= {name: of_edges if level == "edge" else Role("node")} if level else {}
    if _runs(site, {}) or not _runs(joined, told):
        return site, {}
    return joined, told


def _runs(site: BoundCall, told: dict[str, Role]) -> bool:
    """Whether the model runs on a small call of this kind."""
    try:
        roles = classify(site, None, told)
    except (InvalidDeltaError, UnsupportedModelError):
        return False
    return runs(site, probe_of(site, roles).arguments(site, roles))

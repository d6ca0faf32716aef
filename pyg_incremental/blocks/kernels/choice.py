"""Which edges a node keeps of all that are gathered at it."""

from pyg_incremental.kernels.jit import njit


@njit(cache=True)
def keep_some(node, chance, left, need, stays):  # type: ignore[no-untyped-def]
    """Say for edges, one by one, whether the node keeps them.

    Every edge is kept with the probability that is left to it: what the node still needs, over the
    edges of its that are still to come, this one included (Fan, Muller and Rezucha, 1962). So each
    choice of as many edges as it needs is as likely as any other, and no edge is looked at twice.

    Args:
        node: The node of each edge, int32 `[k]`.
        chance: A number from 0 to before 1 for each edge, float64 `[k]`.
        left: How many edges of each node are still to come, int32 `[num_nodes]`; counted down.
        need: How many of these it is to keep, int32 `[num_nodes]`; counted down.
        stays: Whether it keeps each edge, bool `[k]`; written.

    Returns:
        How many edges are kept.
    """
    kept = 0
    for i in range(node.size):
        v = node[i]
        takes = chance[i] * left[v] < need[v]
        left[v] -= 1
        need[v] -= takes
        stays[i] = takes
        kept += takes
    return kept

"""A graph that changes: edges found by their ends, and the neighbour lists of every node."""

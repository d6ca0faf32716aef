"""Who owns which node: chosen for a whole graph, or for one node that arrives."""

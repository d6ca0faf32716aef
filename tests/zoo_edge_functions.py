"""Cases of one family of convs."""

EDGE_FUNCTION_CASES = []

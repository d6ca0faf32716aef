"""Cases of one family of convs."""

HOP_CASES = []

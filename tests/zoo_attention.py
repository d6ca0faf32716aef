"""Cases of one family of convs."""

ATTENTION_CASES = []

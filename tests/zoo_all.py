"""Every case of the zoo, by what runs it."""

from tests.zoo_attention import ATTENTION_CASES
from tests.zoo_convs import CONV_CASES
from tests.zoo_deep_models import DEEP_CASES
from tests.zoo_edge_functions import EDGE_FUNCTION_CASES
from tests.zoo_edges import EDGE_CASES
from tests.zoo_hetero import GRAPH_CASES, HETERO_CASES, PAIR_CASES
from tests.zoo_hops import HOP_CASES
from tests.zoo_models import MODEL_CASES
from tests.zoo_reductions import REDUCTION_CASES
from tests.zoo_traps import TRAP_CASES

PLAIN = [
    *CONV_CASES, *HOP_CASES, *ATTENTION_CASES, *EDGE_FUNCTION_CASES, *REDUCTION_CASES,
    *MODEL_CASES, *EDGE_CASES, *TRAP_CASES, *DEEP_CASES,
]  # fmt: skip
"""Cases on one kind of nodes and one graph."""
SEVERAL = [*PAIR_CASES, *GRAPH_CASES, *HETERO_CASES]
"""Cases on several kinds of nodes or several graphs."""

"""Every case of the zoo, evaluated in blocks of 1, 7 and all rows, whole and in part."""

import copy
import warnings
import zlib

import pytest
import torch
from torch.utils import _pytree as pytree

from pyg_incremental.blocks.evaluate import evaluator_of, why_not_in_blocks
from pyg_incremental.blocks.given import ids_of
from pyg_incremental.blocks.layer_store import LayerStore
from pyg_incremental.blocks.node_order import NodeOrder
from pyg_incremental.blocks.readouts import has_node_rows
from pyg_incremental.call.bound_call import bind
from pyg_incremental.call.roles import classify
from pyg_incremental.session.prepare import prepare
from pyg_incremental.session.settings import Settings
from pyg_incremental.trace.edge_order import settled
from tests import hetero_oracle
from tests.closeness import assert_close
from tests.hetero_strategies import make_hetero
from tests.oracle import full
from tests.strategies import generator, make_world
from tests.zoo import randomise
from tests.zoo_all import PLAIN, SEVERAL

# PyG says so whenever it is given a CSC adjacency.
pytestmark = pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR:UserWarning")

SIZES = (1, 7, None)
RUNS = [
    pytest.param(case, fmt, id=f"{case}-{fmt}")
    for case in PLAIN
    for fmt in dict.fromkeys((case.formats[0], "csr"))
    if fmt in case.formats
]


class InBlocks:
    """Stands in the place of a model: evaluates each call in blocks of every size."""

    def __init__(self, model, seed):
        self.model, self.rng = model, generator(seed)
        self.parts = []

    def __call__(self, *args, **kwargs):
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # the oracle says it too
            site = bind(self.model, args, kwargs)
            roles = settled(site, classify(site))
            self.plan = prepare(site, roles, Settings())
        if self.plan.fallback or why_not_in_blocks(self.plan.program):
            return None
        results = []
        for size in SIZES:
            for places in (None, self.places(roles)):
                evaluator = evaluator_of(
                    self.plan, roles, 1 << 30, LayerStore(), None, None, size, places
                )
                evaluator.run(lambda rows: None)
                results.append(evaluator.result(None))
                if size == 1:
                    assert evaluator.blocks >= evaluator.total
        if has_node_rows(self.plan.program):
            self.parts = [self.part(roles, size) for size in SIZES]
        for result in results[1:]:
            assert_close(result, results[0], 1e-10)
        return results[0]

    def places(self, roles):
        """The nodes of each kind in any order."""
        return NodeOrder({kind: self.rng.permutation(n) for kind, n in roles.num_nodes.items()})

    def part(self, roles, size):
        """Some rows alone, in an order of their own, one of them twice."""
        asked = {}
        for kind, count in roles.num_nodes.items():
            ids = torch.from_numpy(self.rng.permutation(count)[: 1 + count // 4])
            asked[kind] = torch.cat([ids, ids[:1]])
        order = ids_of(asked, roles.num_nodes)
        ascending = {kind: ids.unique().numpy() for kind, ids in asked.items()}
        places = self.places(roles)
        evaluator = evaluator_of(
            self.plan, roles, 1 << 30, LayerStore(), ascending, None, size, places
        )
        evaluator.run(lambda rows: None)
        return asked, evaluator.result(order)

    def check_parts(self, want):
        """Every part holds the rows of the whole."""
        places = iter([v.kind for v in self.plan.program.outputs] * len(self.parts))
        for asked, part in self.parts:
            rows = pytree.tree_map(lambda t, asked=asked: t[asked[next(places)]], want)
            assert_close(part, rows, what="part")


@pytest.mark.matrix
@pytest.mark.parametrize(("case", "fmt"), RUNS)
def test_equal_to_the_model(case, fmt, seed):
    world = make_world(
        generator([seed, zlib.crc32(str(case).encode())]),
        data=case.data_for(fmt), fmt=fmt, signed=case.signed,
    )  # fmt: skip
    model, twin = case.build(seed)
    ours = InBlocks(model, seed)
    got = case.call(ours, world.inputs())
    assert ours.plan.mode in case.modes(fmt)
    if got is not None:
        want = full(twin, world, case.call)
        assert_close(got, want)
        ours.check_parts(want)


@pytest.mark.matrix
@pytest.mark.parametrize("case", SEVERAL, ids=str)
def test_equal_to_the_model_over_several_kinds(case, seed):
    rng = generator([seed, zlib.crc32(str(case).encode())])
    world = make_hetero(rng, types=case.types, data=case.data, channels=case.channels)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There exist node types")  # with good reason
        model = case.make().double().eval()
    hetero_oracle.full(model, world)  # fills lazy parameters
    model = randomise(model, seed)
    twin = copy.deepcopy(model)
    ours = InBlocks(model, seed)
    args, kwargs = world.arguments()
    got = ours(*args, **kwargs)
    assert ours.plan.mode in case.mode
    if not ours.plan.fallback:
        want = hetero_oracle.full(twin, world)
        assert_close(got, want)
        ours.check_parts(want)

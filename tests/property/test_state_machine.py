"""Any sequence of deltas, refreshes, saves and interrupts equals a recompute."""

import contextlib
import sys
import warnings

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pyg_incremental import GraphDelta, load
from tests.closeness import assert_close
from tests.oracle import World
from tests.side_by_side import SideBySide
from tests.strategies import DELTAS, edge_rows, generator, index, new_data
from tests.zoo import CHANNELS
from tests.zoo_convs import CONV_CASES
from tests.zoo_edges import EDGE_CASES
from tests.zoo_models import BASIC_CASES, HAND_CASES

pytestmark = pytest.mark.unmeasured

NAMES = (
    "gcn-plain", "gcn-weights-signed", "gcn-no-loops-weights", "gcn-max", "sage-mean", "sage-max",
    "sage-std", "sage-list", "gin-two-linears", "gin-relu-first", "gat-heads", "gat-no-loops",
    "gat-attr-mean", "gat-attr-max", "graph-weights-signed", "graph-max-weights",
)  # fmt: skip
MODELS = (
    "GCN-batch-norm", "GCN-weights-improved", "GCN-graph-norm", "GraphSAGE-max-norm-jk",
    "GIN-norm-jk", "GAT-attr", "skips-weights", "shared-gat", "edge-encoder", "pool-to-nodes",
    "edges-by-type", "edges-of-any-name",
)  # fmt: skip
CASES = [case for case in CONV_CASES if case.name in NAMES]
CASES += [case for case in (*BASIC_CASES, *HAND_CASES, *EDGE_CASES) if case.name in MODELS]

seeds = st.integers(0, 2**16)


def special_values():
    return st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 3.0, float("nan"), float("inf"), -1e3])


@contextlib.contextmanager
def interrupted(after):
    """Ctrl-C when the package calls the function of its own that comes `after` so many others."""
    calls = 0

    def interrupt(frame, event, arg):
        nonlocal calls
        if event == "call" and frame.f_globals.get("__name__", "").startswith("pyg_incremental."):
            calls += 1
            if calls > after:
                sys.setprofile(before)
                raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(interrupt)
    try:
        yield
    finally:
        sys.setprofile(before)


class Machine(RuleBasedStateMachine):
    """Holds a wrapped model and the oracle's world side by side."""

    case = None
    backend = "compiled"
    folder = None

    @initialize(data=st.data())
    def first_pass(self, data):
        nodes = data.draw(st.integers(1, 8))
        node = st.integers(0, nodes - 1)
        pairs = data.draw(st.lists(st.tuples(node, node), max_size=14))
        x = torch.tensor(
            data.draw(
                st.lists(
                    st.lists(special_values(), min_size=CHANNELS, max_size=CHANNELS),
                    min_size=nodes,
                    max_size=nodes,
                )
            ),
            dtype=torch.float64,
        )
        self.rng = generator(data.draw(seeds))
        values = {
            name: edge_rows(self.rng, len(pairs), width, self.case.signed, x.dtype)
            for name, width in self.case.data
        }
        world = World(x, pairs, values, signed=self.case.signed)
        self.sides = SideBySide(self.case, world=world, backend=self.backend)

    def step(self, delta, name):
        self.sides.step(delta, name)

    @rule(name=st.sampled_from(sorted(DELTAS)), seed=seeds)
    def named_delta(self, name, seed):
        self.step(DELTAS[name](self.sides.world, generator(seed)), name)

    @rule(data=st.data(), undirected=st.booleans(), seed=seeds)
    def drawn_edges(self, data, undirected, seed):
        """Edges chosen one by one, so that Hypothesis can shrink them."""
        world = self.sides.world
        node = st.integers(0, world.num_nodes - 1)
        pair = st.tuples(node, node)
        added = data.draw(st.lists(pair, max_size=4), label="added")
        gone = data.draw(st.lists(pair, max_size=4), label="deleted")
        delta = {"edge_index_add": index(added), "edge_index_del": index(gone)}
        delta.update(new_data(world, generator(seed), len(added)))
        self.step({**delta, "undirected": undirected, "missing": "ignore"}, "drawn_edges")

    @rule(data=st.data())
    def drawn_features(self, data):
        node = data.draw(st.integers(0, self.sides.world.num_nodes - 1), label="node")
        row = data.draw(st.lists(special_values(), min_size=CHANNELS, max_size=CHANNELS))
        row = torch.tensor([row], dtype=torch.float64)
        self.step({"x_changes": (torch.tensor([node]), row)}, "drawn_features")

    @rule(seed=seeds)
    def delta_and_its_inverse(self, seed):
        inc, world = self.sides.inc, self.sides.world
        delta = GraphDelta(**DELTAS["undirected_mix"](world, generator(seed)))
        inverse = delta.inverse(inc)
        inc.apply_delta(delta)
        inc.apply_delta(inverse)
        # Edges that left and came back stand at the end now; the oracle follows.
        order = inc.graph.to_edge_index().t().tolist()
        data = {name: inc.edge_data(name).clone() for name in world.names}
        assert sorted(map(tuple, order)) == sorted(world.pairs())
        after = World(world.x, order, data, signed=world.signed)
        after.empty = world.empty
        self.sides.world = after
        self.sides.out = inc.out.clone()
        self.sides.done.append("delta and its inverse")

    @rule()
    def an_empty_delta(self):
        """The first example of each machine is the simplest one: this rule, again and again."""
        self.step({}, "an_empty_delta")

    @rule()
    def refresh_all(self):
        self.sides.inc.refresh()
        self.sides.out = self.sides.inc.out.clone()

    @rule(data=st.data())
    def refresh_some(self, data):
        nodes = st.integers(0, self.sides.world.num_nodes - 1)
        some = data.draw(st.lists(nodes, max_size=3, unique=True))
        self.sides.inc.refresh(torch.tensor(some, dtype=torch.long))
        self.sides.out = self.sides.inc.out.clone()

    @rule()
    def save_and_load(self):
        path = self.folder / "state"
        self.sides.inc.save(path)
        model, _ = self.case.build(0)
        self.sides.inc = load(path, model)
        assert_close(self.sides.inc.out, self.sides.out, tolerance=1e-12)
        self.sides.out = self.sides.inc.out.clone()

    @rule(seed=seeds)
    def refused_delta(self, seed):
        digest = self.sides.inc.state_digest()
        bad = torch.tensor([[0], [self.sides.world.num_nodes]])
        with pytest.raises(ValueError, match="node"):
            self.sides.inc.apply_delta(edge_index_del=bad)
        assert self.sides.inc.state_digest() == digest

    @precondition(lambda self: self.sides.inc.mode != "full pass")
    @rule(seed=seeds, after=st.integers(0, 120))
    def interrupted_delta(self, seed, after):
        """An interrupt somewhere inside: the state says so, and refresh mends it."""
        world, inc = self.sides.world, self.sides.inc
        delta = DELTAS["mixed"](world, generator(seed))
        version = inc.version
        with contextlib.suppress(KeyboardInterrupt), interrupted(after):
            inc.apply_delta(**delta)
        if inc.stale is not None:
            assert inc.version == version
            with pytest.raises(RuntimeError, match="refresh"):
                inc.apply_delta(**delta)
            inc.refresh()
        if inc.version != version:  # that alone says whether the delta is in
            world.apply(**delta)
        self.sides.out = inc.out.clone()

    @invariant()
    def equals_a_recompute(self):
        if hasattr(self, "sides"):
            self.sides.check_all()
            assert self.sides.inc.check() == [], self.sides.where()


@pytest.mark.many
@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_sequence(case, tmp_path, request):
    machine = type(f"Machine{case.name}", (Machine,), {"case": case, "folder": tmp_path})
    limits = settings(
        max_examples=15 if request.config.getoption("all_cases") else 2,
        stateful_step_count=10,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*Every update runs that on all rows")
        run_state_machine_as_test(machine, settings=limits)


SIX = ("gcn-weights-signed", "sage-mean", "gat-heads", "gat-attr-mean", "sage-std", "edge-encoder")


@pytest.mark.parametrize("case", [case for case in CASES if case.name in SIX], ids=str)
def test_any_sequence_on_reference_kernels(case, tmp_path):
    about = {"case": case, "folder": tmp_path, "backend": "reference"}
    limits = settings(
        max_examples=3,
        stateful_step_count=8,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(type("ReferenceMachine", (Machine,), about), settings=limits)

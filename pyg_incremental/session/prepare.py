"""From a call to its plan: traced, and held against the model before it is trusted."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree
from torch_geometric.nn import MessagePassing

from pyg_incremental.call import full_pass
from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.learned import why_fixed
from pyg_incremental.call.members import with_members
from pyg_incremental.call.plan import CallPlan
from pyg_incremental.call.roles import Roles
from pyg_incremental.call.traced import NotTraceable, Output, Traced
from pyg_incremental.conv import has_program
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.resolve.derived import with_derived
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.program.origin import Origin, Place, in_brackets
from pyg_incremental.program.steps import Domain, Program
from pyg_incremental.session.against_model import found_by_trying
from pyg_incremental.session.mistaken import refuse_mistaken
from pyg_incremental.session.session import Session
from pyg_incremental.session.settings import Settings
from pyg_incremental.trace.copies import ModelCopies, ModelCopy
from pyg_incremental.trace.probe import Probe, edged, probe_of
from pyg_incremental.trace.trace import Opens, Trial, trace, tried_on
from pyg_incremental.trace.where import raised_at

_NO_VALUES = torch.empty(0)


class _NotCopied(Exception):
    """A model that cannot be tried without touching it."""


def prepare(site: BoundCall, roles: Roles, settings: Settings, in_one: bool = True) -> CallPlan:
    """Trace a call, and hold the program against the model on a small probe before it is trusted.

    Args:
        site: The call.
        roles: What its tensors are.
        settings: What the user chose.
        in_one: Whether all nodes and edges are at hand, so that readouts of all of them add up, and
            other edges can be made of them.

    Raises:
        UnsupportedModelError: If `strict` and some step has to run on all rows.
    """
    try:
        roles, tried = _tried(site, roles)
        expected = tried.output
    except Exception as error:  # a user's model may raise anything
        if full_pass.lacks_memory(error):
            raise
        reason = (
            str(error)
            if isinstance(error, _NotCopied)
            else (f"it does not run on a probe of {_sizes(site, roles)} nodes ({_written(error)})")
        )
        # A broken call raises here as it does in PyG.
        try:
            expected = full_pass.run(site, list(site.tensors.values()))
        except Exception as failure:
            refuse_mistaken(site, roles, failure)
            raise
        place = raised_at(error)
        step = _one_step(site, roles, expected, place)
        reason = reason.partition("\n")[0] + in_brackets(place)
        plan = CallPlan(site, _lean(roles), step, site.whole or reason)
    else:
        lean = _lean(roles)
        try:
            if site.keeps or site.whole:
                raise NotTraceable(site.whole or f"it keeps {site.keeps} from call to call")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                traced = _traced(site, roles, tried, in_one)
                found = with_members(lean, traced.program)
                plan = CallPlan(site, found, traced, "")
                _hold_against(plan, replace(tried, probe=edged(tried.probe, found)), settings)
        except NotTraceable as error:
            step = _one_step(site, roles, expected, error.place)
            plan = CallPlan(site, lean, step, str(error))
    if settings.strict and plan.why:
        raise UnsupportedModelError(
            f"{type(site.model).__name__} has steps that run on all rows with every update: "
            f"{'; '.join(plan.why)}. Replace them, or wrap it without strict=True: it then stays "
            "exact at the cost of these steps"
        )
    return plan


def _lean(roles: Roles) -> Roles:
    """The roles without the tensors of the call, for a model that runs whole."""
    roles = with_members(roles, None)
    return replace(roles, edge_index={}, values=dict.fromkeys(roles.values, _NO_VALUES))


def _tried(site: BoundCall, roles: Roles) -> tuple[Roles, Trial]:
    """What a copy of the model does on a probe.

    A model that fails on it, but runs on its own number of nodes, and has a parameter with as many
    rows, has learned one row for each of them.
    """
    try:
        return roles, _on_probe(site, roles)
    except (_NotCopied, MemoryError):
        raise
    except Exception:
        count = roles.num_nodes.get("")
        why = None if count is None or roles.fixed else why_fixed(site.model, count)
        if why is None:
            raise
        learned = replace(roles, fixed={"": why})
        try:
            return learned, _on_probe(site, learned)
        except Exception:  # then it was not for the number of nodes
            why = None
        raise


def _on_probe(site: BoundCall, roles: Roles) -> Trial:
    """Call a copy of the model on a probe, and see whether anything stays in it."""
    probe = probe_of(site, roles)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first pass itself will say it
        if any(is_lazy(p) for p in site.model.parameters()):
            # The first call of all gives them their shape.
            full_pass.run(site, probe.arguments(site, roles))
        try:
            copied = ModelCopy(site.model)
        except MemoryError:
            raise
        except Exception as error:  # whatever a user's module holds
            raise _NotCopied(f"it cannot be copied ({_written(error)})") from error
        kept = ModelCopies(copied.model)
        trial = tried_on(site, roles, probe, copied)
    site.keeps = kept.changed() or copied.written()
    return trial


def _traced(site: BoundCall, roles: Roles, tried: Trial, in_one: bool) -> Traced:
    """The program of a call.

    Convs without a program are written down as what they do, where all of that can be followed;
    else as one call each, if fewer steps run on all rows then, or as few of them and fewer on whole
    neighbourhoods. At last every graph is taken to keep two edges, so that a branch or a `squeeze`
    that asks for that goes one way. Convs whose programs are not for such a call, as for edge data
    that the model has made of node rows, count as what they do, too.

    Raises:
        NotTraceable: If there is none.
    """

    def inside(edges: int, convs: Opens = "without a program") -> Traced | None:
        """With what convs do inside, those left out that cannot be followed; None if none can."""
        closed, best = frozenset[str](), None
        while True:
            left: set[str] = set()
            try:
                again = tried_on(site, roles, tried.probe, tried.copied, convs, edges, closed)
                made = trace(site, roles, again, in_one)
            except MemoryError:
                raise
            except Exception as error:  # a conv may raise anything where it is looked into
                left = {_raised_in(error)}
            else:
                best = _better(best, made)
                origins = map(
                    made.program.origins.get, (s.output for s in made.program.whole_steps)
                )
                left = {o.conv for o in origins if o is not None}
            # Those of one class mostly share a fate, and each try takes a whole trace.
            kinds = {type(m) for path, m in site.named_modules() if path in left - {""}}
            left = {path for path, m in site.named_modules() if type(m) in kinds} - closed
            if not left:
                return best
            closed |= left

    modules = site.model.modules()
    opens = any(isinstance(m, MessagePassing) and not has_program(m) for m in modules)
    first = inside(0) if opens else None
    if first is not None and not any(_anew(first.program)):
        return first
    best, why = None, None
    try:
        best = trace(site, roles, tried, in_one)
    except NotTraceable as error:
        why = error
    best = _better(first, best)
    least = min([2, *(_num_edges(site.tensors[r.graph]) for r in roles.given)])
    for edges in dict.fromkeys((0, least)[opens:]):
        if best is None or best.program.whole_steps:
            best = _better(best, inside(edges))
    if best is not None and _is_of_conv(best.program, site):
        best = _better(best, inside(0, "all"))
    if best is None:
        raise why or NotTraceable("")
    return best


def _is_of_conv(program: Program, site: BoundCall) -> bool:
    """Whether a conv runs on all rows."""
    convs = {path for path, m in site.named_modules() if isinstance(m, MessagePassing)}
    steps = (program.origins.get(s.output) for s in program.whole_steps)
    return any(o is not None and f"model.{o.what}".removesuffix(".") in convs for o in steps)


def _better(one: Traced | None, other: Traced | None) -> Traced | None:
    """The other program, if there is only that, or less of it runs on all rows, or anew."""
    if one is None or other is None:
        return one or other
    return other if _anew(other.program) < _anew(one.program) else one


def _anew(program: Program) -> tuple[int, int]:
    """How many steps run on all rows, and how many on whole neighbourhoods."""
    return len(program.whole_steps), len(found_by_trying(program))


def _raised_in(error: BaseException | None) -> str:
    """The path of the conv that an exception comes from; empty if it comes from none."""
    while error is not None and not hasattr(error, "conv"):
        error = error.__cause__
    return getattr(error, "conv", "")


def _num_edges(graph: Any) -> int:
    plain = isinstance(graph, Tensor) and graph.layout is torch.strided
    return graph.shape[1] if plain else 0


def _sizes(site: BoundCall, roles: Roles) -> str:
    return ", ".join(map(str, probe_of(site, roles).num_nodes.values()))


def _written(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _one_step(site: BoundCall, roles: Roles, expected: Any, place: Place | None) -> Traced:
    """The program that runs the whole model; `place` is the line because of which it does.

    Nothing is known of what it returns: another graph may give another number of rows.
    """
    program = Program()
    relations = {r.graph: r for r in roles.relations}
    values = []
    for name in site.names:
        if name in relations:
            values.append(program.graph(relations[name]))
            if name in roles.values:
                program.input(relations[name].values, Domain.EDGE, name)
        else:
            values.append(roles.declare(program, name))

    def model(*tensors: Any) -> Any:
        return full_pass.run(site, list(tensors))

    leaves, structure = pytree.tree_flatten(expected)
    result = program.whole("model", model, values, Domain.WHOLE, "the model")
    program.origins[result] = Origin(type(site.model).__name__, place)
    places: list[Any] = []
    for i, leaf in enumerate(leaves):
        if leaf is None:
            places.append(None)
            continue
        if not isinstance(leaf, Tensor):
            raise UnsupportedModelError(
                f"{type(site.model).__name__} returns {type(leaf).__name__} beside tensors, "
                "which cannot be kept current; return tensors, in a tuple, a dict, a NamedTuple or "
                "a dataclass"
            )
        part = program.whole(f"out_{i}", partial(_leaf, i), [result], Domain.WHOLE, "")
        places.append(Output(len(program.outputs)))
        program.outputs.append(part)
    return Traced(program, pytree.tree_unflatten(places, structure))


def _leaf(i: int, result: Any) -> Any:
    return pytree.tree_leaves(result)[i]


def _hold_against(plan: CallPlan, trial: Trial, settings: Settings) -> None:
    """Run the program on the probe, then a delta, and compare with a copy of the model.

    Raises:
        NotTraceable: If they disagree: the trace has missed something that the model does.
    """
    probe, original = trial.probe, plan.site.on(trial.copied.model)
    site, roles = plan.site, plan.roles
    nodes = {k: probe.tensors[k] for k in roles.nodes}
    others = {k: probe.tensors[k] for k in roles.others}
    graphs = {
        r.graph: DynamicGraph(
            probe.edge_index[r.graph],
            max(probe.num_nodes[r.source], probe.num_nodes[r.target]),
            roles.data_of(r, probe.tensors)
            | ({r.values: probe.tensors[r.values]} if r.graph in roles.values else {}),
            r.by_target,
        )
        for r in roles.relations
        if r.derived is None
    }
    graphs = with_derived(roles.relations, graphs, probe.num_nodes)
    try:
        session = Session(plan, graphs, dict(probe.num_nodes), nodes, others, settings)
        session.fill(nodes, others)
        _same_or_raise(session.outputs.now(copy=False), trial.output, "on a probe")
        session.update(session.resolver.resolve(_delta(roles, probe, graphs)))
        theirs = full_pass.run(original, session.arguments())
        _same_or_raise(session.outputs.now(copy=False), theirs, "on a probe after a delta")
    except NotTraceable:
        raise
    except Exception as error:  # a user's model may raise anything when it sees fewer rows
        if full_pass.lacks_memory(error):
            raise
        raise NotTraceable(
            f"the program of {type(site.model).__name__} fails on a probe ({type(error).__name__}: "
            f"{error})"
        ) from error


def _delta(roles: Roles, probe: Probe, graphs: Mapping[str, DynamicGraph]) -> GraphDelta:
    """A bit of everything; larger than anything before, so that no maximum can hide."""
    tensors, counts = probe.tensors, probe.num_nodes
    add, gone, data = {}, {}, {}
    for r in roles.given:
        edges = probe.edge_index[r.graph]
        fresh, left = edges[:, _places(edges.shape[1], 0, 5)], _places(edges.shape[1], 1, 7)
        if r.source == r.target:
            fresh = fresh.flip(0)
        if roles.grows(r.target):
            fresh = torch.cat([fresh, torch.tensor([[0], [counts[r.target]]])], 1)
        add[r.key], gone[r.key] = fresh, edges[:, left]
        taken = torch.arange(2, 2 + fresh.shape[1]) % max(edges.shape[1], 1)
        data[r.key] = {k: _tripled(v[taken]) for k, v in graphs[r.graph].edge_data.items()}
    x_add = {}
    given = roles.handed_in.nodes
    if len(given) == len(set(given.values())):
        x_add = {k: _tripled(tensors[k][[6]]) for k, of in given.items() if of not in roles.fixed}
    x_changes = {}
    for k, of in given.items():
        ids = _places(counts[of], 2, 3)
        rows = [(at + 2) % counts[of] for at in ids]
        x_changes[k] = (ids, _tripled(tensors[k][rows]))
    return GraphDelta(
        edge_index_add=add,
        edge_index_del=gone,
        x_changes=x_changes,
        x_add=x_add,
        edge_data_add=data,
    )


def _places(count: int, *places: int) -> list[int]:
    """Distinct places in a list that may be too short for them."""
    return sorted({at % count for at in places}) if count else []


def _tripled(rows: Tensor) -> Tensor:
    return 3 * rows if rows.dtype.is_floating_point else rows


def _same_or_raise(ours: Any, theirs: Any, where: str) -> None:
    own, want = (
        [t for t in pytree.tree_leaves(o) if isinstance(t, Tensor)] for o in (ours, theirs)
    )
    if [t.dtype for t in own] != [t.dtype for t in want]:
        raise NotTraceable(f"its inputs are of different dtypes, and its output {where} too")
    gap = full_pass.gap(ours, theirs)
    if gap:
        raise NotTraceable(f"the traced program differs from the model by {gap:.3g} {where}")

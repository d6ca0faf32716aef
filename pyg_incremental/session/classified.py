"""What the tensors of a call are, where only the model itself, or its user, can say it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, product

from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.roles import Roles, classify, unsaid_pairs
from pyg_incremental.call.said import Role, said_of
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.session.prepare import prepare
from pyg_incremental.session.settings import Settings
from pyg_incremental.session.unforced import Choice, decided
from pyg_incremental.trace.edge_order import settled
from pyg_incremental.trace.one_set import on_one_set

MOST = 64
"""Pairs of kinds of nodes that are tried at most."""


def classified(site: BoundCall, settings: Settings) -> tuple[BoundCall, Roles]:
    """The call with pairs in the place of ids, and the roles of its tensors; see `classify`.

    Watched pairs among several kinds of nodes do not say which kinds they join. The model does, by
    the rows that it reads at their ends: the kinds with which most of it is followed. Those that an
    edge type joins are tried first. All pairs of a call are taken to join the same kinds.

    Args:
        site: The call.
        settings: What the user chose.

    Raises:
        UnsupportedModelError: If there is no graph, or there are no nodes.
        InvalidDeltaError: If a shape, dtype or id does not fit, or an argument may be several
            things.
    """
    times = {n: Role(n.partition("_")[0]) for n in site.beside if n in site.tensors}
    site, views = on_one_set(site)
    choice = decided(site, views | times | said_of(site.model, settings.roles))
    site, told = choice.site, choice.roles
    site.why = choice.why
    names = [name for name in unsaid_pairs(site) if name not in choice.pairs]
    if not names:
        return site, settled(site, classify(site, choice.pairs, told))
    best, least = None, 0
    quiet = replace(settings, strict=False)
    for roles in _choices(site, names, choice):
        plan = prepare(site, roles, quiet)
        if not plan.why:
            return site, roles
        steps = len(site.names) + len(plan.traced.program.steps) if plan.fallback else len(plan.why)
        if best is None or steps < least:
            best, least = roles, steps
    # Without any that fits, this says what is wrong.
    return site, best or settled(site, classify(site, choice.pairs, told))


def _choices(site: BoundCall, names: list[str], choice: Choice) -> Iterator[Roles]:
    """The roles with each pair of kinds that the ids of the pairs allow."""
    types = (key for key in site.keys.values() if isinstance(key, tuple))
    joined = [(key[0], key[-1]) for key in types]
    kinds = dict.fromkeys(key for key in site.keys.values() if isinstance(key, str))
    every = dict.fromkeys(chain(joined, product(kinds, kinds)))
    for ends in [*every][:MOST]:
        pairs = {**choice.pairs, **dict.fromkeys(names, ends)}
        try:
            yield settled(site, classify(site, pairs, choice.roles))
        except InvalidDeltaError:  # there are not so many nodes of these kinds
            continue

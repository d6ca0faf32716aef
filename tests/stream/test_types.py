"""Events of several types of nodes and edges, held against a plain recount of them."""

import itertools
import math
import random

import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphConv, GraphSAGE, HeteroConv, SAGEConv, to_hetero

from pyg_incremental import IncrementalError, InvalidDeltaError, to_incremental
from pyg_incremental.sources import IterableSource
from pyg_incremental.stream import Feature, HeteroSchema, Schema, Stream, Window

RATES, RATED_BY = ("user", "rates", "film"), ("film", "rated_by", "user")
FOLLOWS = ("user", "follows", "user")
EDGES = (RATES, RATED_BY, FOLLOWS)
USERS, FILMS, NEW = 8, 5, [1.0, -1.0, 0.5]


class Recommender(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = HeteroConv({
            RATES: GraphConv((3, 2), 4), RATED_BY: SAGEConv((2, 3), 4, aggr="max"),
            FOLLOWS: SAGEConv(3, 4),
        })  # fmt: skip
        self.second = HeteroConv({RATES: SAGEConv(4, 2), RATED_BY: SAGEConv(4, 2)})

    def forward(self, x_dict, edge_index_dict, edge_weight_dict):
        h = self.first(x_dict, edge_index_dict, edge_weight_dict=edge_weight_dict)
        return self.second({kind: rows.relu() for kind, rows in h.items()}, edge_index_dict)


def recommender():
    torch.manual_seed(0)
    return Recommender().double().eval()


def first(seed, edges=12):
    """The arguments of the first call; users have names, films have none."""
    torch.manual_seed(seed)
    size = {"user": USERS, "film": FILMS}
    return {
        "x_dict": {"user": torch.randn(USERS, 3).double(), "film": torch.randn(FILMS, 2).double()},
        "edge_index_dict": {
            of: torch.stack([torch.randint(size[of[0]], (edges,)),
                             torch.randint(size[of[2]], (edges,))]) for of in EDGES
        },
        "edge_weight_dict": {RATES: torch.rand(edges).double()},
        "edge_time": {of: torch.zeros(edges).double() for of in (RATES, FOLLOWS)},
        "node_ids": {"user": [f"u{n}" for n in range(USERS)]},
    }  # fmt: skip


def schema(features=()):
    timed = {"edge_time": "at"}
    return HeteroSchema({
        "user": Schema(node="who", x=["a", "b", "c"], kind="op", new_x=NEW),
        "film": Schema(node="film", kind="op"),
        RATES: Schema("who", "film", kind="op", time="at", event_id="id", features=features,
                      edge_data={"edge_weight": "w", **timed}),
        RATED_BY: Schema("film", "who", kind="op", event_id="id"),
        FOLLOWS: Schema("who", "whom", time="at", edge_data=timed),
    }, type="about")  # fmt: skip


class Plain:
    """Lists of nodes and edges by type; an event that does not fit is left out."""

    def __init__(self, first, windows=()):
        self.x = {
            "user": dict(zip(first["node_ids"]["user"], first["x_dict"]["user"], strict=True)),
            "film": dict(enumerate(first["x_dict"]["film"])),
        }
        keys = {kind: [*rows] for kind, rows in self.x.items()}
        weights = first["edge_weight_dict"][RATES].tolist()
        self.edges = {
            of: [
                (keys[of[0]][u], keys[of[2]][v], weights[n] if of == RATES else 1.0, 0.0, 0)
                for n, (u, v) in enumerate(first["edge_index_dict"][of].t().tolist())
            ]
            for of in EDGES
        }
        self.windows, self.latest, self.refused, self.seen = dict(windows), -math.inf, [], set()
        self.number = 0  # of the event that brought an edge; that of the first ones

    def take(self, place, event):
        of = {"rates": RATES, "film__rated_by__user": RATED_BY, "follows": FOLLOWS}.get(
            event["about"], event["about"]
        )
        key, self.number = (of, event.get("id")), place
        if "id" in event and key in self.seen:
            return
        try:
            if event.get("who", "") is None and of != "film":
                raise TypeError
            (self._node if isinstance(of, str) else self._edge)(of, event)
            self.seen.add(key)
        except (LookupError, ValueError, TypeError):
            self.refused.append(place)
        for own, window in self.windows.items():
            begins = window.begins(self.latest)
            self.edges[own] = [e for e in self.edges[own] if e[3] >= begins]

    def _node(self, of, event):
        node = event["who" if of == "user" else "film"]
        if event["op"] == "node_del":
            self.x[of][node]
            for own in EDGES:
                self.edges[own] = [
                    e for e in self.edges[own]
                    if (own[0], e[0]) != (of, node) and (own[2], e[1]) != (of, node)
                ]  # fmt: skip
            if of == "film":
                self.x[of][node] = torch.zeros(2).double()
            else:
                del self.x[of][node]
            return
        row = event["x"] if of == "film" else [event[k] for k in "abc"]
        row = torch.tensor(row, dtype=torch.float64)
        if of == "film" and (node > len(self.x[of]) or len(row) != 2):
            raise ValueError(node)
        self.x[of][node] = row

    def _edge(self, of, event):
        fields = {RATES: ("who", "film"), RATED_BY: ("film", "who"), FOLLOWS: ("who", "whom")}[of]
        pair, op = tuple(event[f] for f in fields), event.get("op", "edge_add")
        at = None if of == RATED_BY else event["at"]
        weight = float(event["w"]) if of == RATES and op != "edge_del" else 1.0
        if of in self.windows and at < self.windows[of].begins(self.latest):
            raise ValueError(at)
        for kind, node in zip(of[::2], pair, strict=True):
            if kind == "film" or op != "edge_add":
                self.x[kind][node]
        if op == "edge_add":
            for kind, node in zip(of[::2], pair, strict=True):
                if kind == "user":
                    self.x[kind].setdefault(node, torch.tensor(NEW, dtype=torch.float64))
            self.edges[of].append((*pair, weight, at, self.number))
        else:
            place = max(n for n, e in enumerate(self.edges[of]) if e[:2] == pair)
            number = self.edges[of][place][4]
            new = (*pair, weight, at, number)
            self.edges[of][place : place + 1] = [new] * (op == "edge_change")
        self.latest = max(self.latest, -math.inf if at is None else at)

    @torch.no_grad()
    def out(self, model, x=None):
        """The rows of the model itself, by type and node."""
        rows = {kind: {node: n for n, node in enumerate(own)} for kind, own in self.x.items()}
        x = x or {kind: torch.stack([*own.values()]) for kind, own in self.x.items()}
        edges = {
            of: torch.tensor([[rows[of[0]][e[0]] for e in own], [rows[of[2]][e[1]] for e in own]])
            .reshape(2, -1).long() for of, own in self.edges.items()
        }  # fmt: skip
        weights = torch.tensor([e[2] for e in self.edges[RATES]], dtype=torch.float64)
        out = model(x, edges, {RATES: weights})
        return {kind: dict(zip(self.x[kind], own, strict=True)) for kind, own in out.items()}


def events_of(seed, count, kinds=("edge_add", "edge_del", "edge_change", "node", "node_del")):
    rng, found, films, pairs = random.Random(seed), [], FILMS, []
    for n in range(count):
        about = rng.choice(
            ["rates"] * 4 + ["film__rated_by__user"] * 2 + ["follows", "user", "film"]
        )
        event = {"about": about, "at": n / 4 - rng.choice([0, 0, 0.5, 4.0])}
        who, film = f"u{rng.randrange(USERS + 3)}", rng.randrange(films + 1)
        if about in ("user", "film"):
            event["op"] = rng.choice([k for k in kinds if k.startswith("node")] or ["node"])
            row = {k: rng.gauss(0, 1) for k in "abc"}
            event |= (
                {"who": who, **row} if about == "user" else {"film": film, "x": [*row.values()][:2]}
            )
            films += about == "film" and event["op"] == "node" and film == films
        else:
            event["op"] = rng.choice(["edge_add"] + [k for k in kinds if k.startswith("edge")])
            if event["op"] != "edge_add" and pairs:
                who, film = rng.choice(pairs[-6:])
            pairs.append((who, film))
            event |= {
                "who": who,
                "whom": f"u{rng.randrange(USERS)}",
                "film": film,
                "w": rng.random(),
            }
            event |= {"id": n} if about != "follows" else {}
            if about == "film__rated_by__user" and event["op"] == "edge_change":
                event["op"] = "edge_del"
            if about == "follows":
                del event["op"]
        if rng.random() < 0.06:
            event |= rng.choice([{"who": None}, {"film": 99}, {"w": "x"}, {"x": [1.0]}])
        found.append(event)
        if "id" in event and rng.random() < 0.25:
            found.append({**event})
    return found


def held_against(stream, plain, events, model=None):
    stream.drain()
    for place, event in enumerate(events, 1):
        plain.take(place, event)
    assert {letter.position for letter in stream.dead_letters} == {*plain.refused}
    same_rows(stream.inc, plain.out(model or recommender()))


def same_rows(inc, want):
    rows = {"user": inc.node_rows["user"], "film": range(inc.num_nodes_dict["film"])}
    for kind, own in want.items():
        assert len(own) == len(rows[kind])
        for node, row in own.items():
            assert (inc.out[kind][rows[kind][node]] - row).abs().max() < 1e-9, (kind, node)


def stream_of(seed, events, windows=None, features=(), model=None, **how):
    inc = to_incremental(model or recommender(), backend="reference", check=False)
    return Stream(
        inc, IterableSource(events), schema(features), first=first(seed), window=windows, **how
    )


@pytest.mark.parametrize("size", [1, 7, 200])
@pytest.mark.parametrize("seed", range(2))
def test_random_events_of_all_types(seed, size):
    events = events_of(seed, 110)
    stream = stream_of(seed, events, max_size=size)
    held_against(stream, Plain(first(seed)), events)
    assert stream.stats.dead > 5
    assert stream.stats.repeated > 2


@pytest.mark.parametrize(("size", "kinds"), [(1, None), (9, ("edge_add", "node"))])
@pytest.mark.parametrize("seed", range(2))
def test_each_type_has_a_window(seed, size, kinds):
    windows = {RATES: Window(6.0, every=0.06), FOLLOWS: Window(13.0, every=0.13)}
    events = events_of(seed, 110, *([] if kinds is None else [kinds]))
    stream = stream_of(seed, events, windows, max_size=size)
    plain = Plain(first(seed), windows)
    held_against(stream, plain, events)
    assert plain.edges[RATED_BY]
    assert stream.stats.expired > 10


@pytest.mark.parametrize("size", [1, 9])
def test_features_of_a_type_made_of_the_events_of_another(size):
    made = [Feature(0, "count"), Feature(1, "sum", of="w"), Feature(2, "last", of="w", at="src")]
    events = events_of(5, 110)
    stream = stream_of(5, events, features=made, max_size=size)
    stream.drain()
    plain, base = Plain(first(5)), {}
    for place, event in enumerate(events, 1):
        plain.take(place, event)
        for kind, own in plain.x.items():  # what a node had when it came, removed ones included
            base |= {(kind, n): row for n, row in own.items() if (kind, n) not in base}
            base = {key: row for key, row in base.items() if key[0] != kind or key[1] in own}
            base |= {(kind, n): row for n, row in own.items() if not row.any()}
    rows = {"user": stream.inc.node_rows["user"], "film": range(len(plain.x["film"]))}
    want = {kind: torch.stack([*own.values()]) for kind, own in plain.x.items()}
    for n, film in enumerate(plain.x["film"]):
        come = [e for e in plain.edges[RATES] if e[1] == film and e[4]]
        want["film"][n, :2] = base["film", film][:2]
        want["film"][n, 0] += len(come)
        want["film"][n, 1] += sum(e[2] for e in come)
    for n, user in enumerate(plain.x["user"]):
        sent = [e for e in plain.edges[RATES] if e[0] == user and e[4]]
        last = max(sent, key=lambda e: (e[3], e[4]))[2] if sent else base["user", user][2]
        want["user"][n, 2] = last
    for kind, own in plain.x.items():
        for n, node in enumerate(own):
            assert (stream.inc.x[kind][rows[kind][node]] - want[kind][n]).abs().max() < 1e-9
    same_rows(stream.inc, plain.out(recommender(), want))


@pytest.mark.parametrize("cut", [1, 8])
def test_a_restart(tmp_path, cut):
    windows = {RATES: Window(6.0, every=0.06)}
    made = [Feature(0, "count"), Feature(2, "last", of="w", at="src")]
    events, heard = events_of(7, 110), []

    def opened():
        stream = stream_of(7, events, windows, made, directory=tmp_path / "a", max_size=9)
        stream.on(lambda a: heard.append((a.version, a.node_type, a.node)), changed=0.0)
        return stream

    stream = opened()
    for step in range(cut):
        stream.step()
        if step == 4:
            stream.checkpoint()
    stream._let_go()
    with opened() as stream:
        stream.drain()
        again, out = {*heard}, stream.inc.out
        versions = stream.inc.version, stream.stats.applied, stream.stats.repeated
    heard.clear()
    whole = stream_of(7, events, windows, made, max_size=9)
    whole.on(lambda a: heard.append((a.version, a.node_type, a.node)), changed=0.0)
    whole.drain()
    assert versions == (whole.inc.version, whole.stats.applied, whole.stats.repeated)
    assert again == {*heard}
    for kind, rows in whole.inc.out.items():
        assert (rows - out[kind]).abs().max() < 1e-9


def test_alerts_name_the_type():
    events = [{"about": "rates", "who": "u1", "film": 2, "w": 9.0, "at": 1.0, "id": 1,
               "op": "edge_add"}]  # fmt: skip
    stream = stream_of(0, events)
    heard = {"all": [], "film": [], "watched": [], "crossed": []}
    before = {kind: rows.clone() for kind, rows in stream.inc.out.items()}
    stream.on(heard["all"].append, changed=1e-9)
    stream.on(heard["film"].append, changed=1e-9, type="film")
    stream.on(heard["watched"].append, changed=1e-9, type="user", nodes=["u2", "u3"])
    stream.on(heard["crossed"].append, crossed=0.0, channel=1, type="film")
    stream.drain()
    rows = {"user": stream.inc.node_rows["user"], "film": range(FILMS)}
    moved = [
        (kind, node) for kind, own in rows.items() for node in own
        if (before[kind][rows[kind][node]] != stream.inc.out[kind][rows[kind][node]]).any()
    ]  # fmt: skip
    assert ("film", 2) in moved
    assert sorted((a.node_type, a.node) for a in heard["all"]) == sorted(moved)
    assert sorted((a.node_type, a.node) for a in heard["film"]) == [
        m for m in sorted(moved) if m[0] == "film"
    ]
    assert {a.node for a in heard["watched"]} == {n for k, n in moved if n in ("u2", "u3")}
    for alert in heard["crossed"]:
        assert (alert.old >= 0) != (alert.new >= 0)
    with pytest.raises(ValueError, match="there is no type 'nothing'"):
        stream.on(print, flipped=True, type="nothing")


class OfObject(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = to_hetero(
            GraphSAGE((-1, -1), 4, num_layers=2, out_channels=2),
            (["user", "film"], [RATES, RATED_BY, FOLLOWS]),
        )

    def forward(self, data):
        return self.inner(data.x_dict, data.edge_index_dict)


@pytest.mark.parametrize("size", [1, 40])
def test_a_model_of_to_hetero_that_takes_an_object(size):
    given = first(3)
    data = HeteroData()
    for kind, rows in given["x_dict"].items():
        data[kind].x = rows.float()
    for of, pairs in given["edge_index_dict"].items():
        data[of].edge_index = pairs
    torch.manual_seed(0)
    model = OfObject().eval()
    with torch.no_grad():
        model(data)
    model = model.double()
    for kind in given["x_dict"]:
        data[kind].x = data[kind].x.double()
    rng = random.Random(3)
    events = [
        {"type": "follows", "src": rng.randrange(USERS), "dst": rng.randrange(USERS)} if n % 3
        else {"type": "rates", "src": rng.randrange(USERS), "dst": rng.randrange(FILMS)}
        for n in range(40)
    ]  # fmt: skip
    events[7] = {"type": "film", "node": FILMS, "x": [0.5, 2.0]}
    events[9] = {"type": "rates", "src": 2, "dst": FILMS}
    inc = to_incremental(model, backend="reference", check=False)
    by_type = HeteroSchema({"film": Schema(), "user": Schema(), RATES: Schema(), FOLLOWS: Schema()})
    stream = Stream(inc, IterableSource(events), by_type, first=data, max_size=size)
    stream.drain()
    assert stream.stats.dead == 0
    data["film"].x = torch.cat([data["film"].x, torch.tensor([[0.5, 2.0]]).double()])
    for of in (RATES, FOLLOWS):
        more = [[e["src"], e["dst"]] for e in events if e["type"] == of[1]]
        data[of].edge_index = torch.cat([data[of].edge_index, torch.tensor(more).t()], 1)
    with torch.no_grad():
        want = model(data)
    for kind, rows in want.items():
        assert (inc.out[kind] - rows).abs().max() < 1e-10


def test_some_types_expire_alone():
    given = first(0)
    inc = to_incremental(recommender(), backend="reference", check=False)
    inc(**given)
    for of in (RATES, FOLLOWS):
        inc.apply_delta(
            edge_index_add={of: [["u1"], [1 if of == RATES else "u2"]]},
            edge_weight_add={RATES: [2.0]} if of == RATES else None,
            edge_data_add={of: {"edge_time": [5.0]}},
        )
    up = inc.expire(before={FOLLOWS: 3.0})
    assert up.stats.edges_deleted == 12
    assert inc.graph[FOLLOWS].num_edges == 1
    assert inc.graph[RATES].num_edges == 13
    assert inc.expire(before={RATES: 0.0, FOLLOWS: 6.0}).stats.edges_deleted == 1
    with pytest.raises(InvalidDeltaError, match="there are no times 'edge_time' of"):
        inc.expire(before={RATED_BY: 3.0})
    assert inc.edge_data("edge_time", FOLLOWS).tolist() == []
    assert inc.edge_data("edge_weight", RATES).shape == (13,)
    with pytest.raises(KeyError, match="no edge input 'edge_weight' of"):
        inc.edge_data("edge_weight", FOLLOWS)


def test_what_does_not_go_together():
    with pytest.raises(ValueError, match="expected types of nodes"):
        HeteroSchema({3: Schema()})
    with pytest.raises(ValueError, match="are not among the types"):
        HeteroSchema({"user": Schema()}, called={"u": "film"})
    with pytest.raises(ValueError, match="of all types, or of none"):
        HeteroSchema({"user": Schema(), RATES: Schema(which="oldest")})
    with pytest.raises(ValueError, match="one for each channel of a type"):
        HeteroSchema({RATES: Schema(features=[Feature(0, "count")]),
                      RATED_BY: Schema(features=[Feature(0, "count", at="src")])})  # fmt: skip
    with pytest.raises(ValueError, match="they are made of edges"):
        HeteroSchema({"user": Schema(features=[Feature(0, "count")])})
    with pytest.raises(IncrementalError, match="the model has no type 'film_star'"):
        Stream(recommender(), IterableSource([]), HeteroSchema({"film_star": Schema()}),
               first=first(0))  # fmt: skip
    with pytest.raises(IncrementalError, match="several types"):
        Stream(recommender(), IterableSource([]), first=first(0))
    with pytest.raises(ValueError, match="expected types of edges"):
        stream_of(0, [], {"user": Window(1.0)})
    with pytest.raises(ValueError, match=r"a schema of .*rated_by.* that says which field"):
        stream_of(0, [], Window(1.0))
    with pytest.raises(ValueError, match="channels of x of 'film', which has 2"):
        stream_of(0, [], features=[Feature(7, "count")])
    stream = stream_of(
        0, [{"about": "stars"}, {"about": ["rates"]}, {"about": "user", "op": "edge_add"}]
    )
    stream.drain()
    why = [letter.reason for letter in stream.dead_letters]
    assert "'about' is 'stars', expected one of" in why[0]
    assert "TypeError" in why[1]
    assert "'op' is 'edge_add', expected one of ['node', 'node_del']" in why[2]


@pytest.mark.parametrize("size", [1, 6])
def test_rows_of_each_type_are_those_of_then(size):
    stream = stream_of(1, events_of(1, 60), keep=200, max_size=size)
    kept = {0: {k: rows.clone() for k, rows in stream.inc.out.items()}}
    while stream.step():
        kept[stream.inc.version] = {k: rows.clone() for k, rows in stream.inc.out.items()}
    assert len(kept) > 6
    for version, out in kept.items():
        then = stream.as_of(version)
        assert then.keys() == out.keys()
        for kind, rows in out.items():
            now = then[kind]
            taken = now.isnan().any(1)  # by a node that came since, in the place of another one
            assert torch.equal(now[~taken], rows[~taken])
            assert int(taken.sum()) < 4


class Even(Recommender):
    """Labels that are near to flip."""

    def __init__(self):
        super().__init__()
        self.middle = None

    def forward(self, x_dict, edge_index_dict, edge_weight_dict):
        out = super().forward(x_dict, edge_index_dict, edge_weight_dict)
        if self.middle is None:
            apart = {kind: (rows[:, 0] - rows[:, 1]).median() + 1e-3 for kind, rows in out.items()}
            self.middle = {k: torch.stack([m, torch.zeros_like(m)]) for k, m in apart.items()}
        return {kind: rows - self.middle[kind] for kind, rows in out.items()}


def even():
    torch.manual_seed(0)
    model, given = Even().double().eval(), first(5)
    with torch.no_grad():
        model(*(given[name] for name in ("x_dict", "edge_index_dict", "edge_weight_dict")))
    return model


def test_the_fewest_events_of_all_types_as_by_full_passes():
    """Of one update after the other; events of one pair or one node are left out together."""
    kinds = ("edge_add", "edge_del", "edge_change", "node")
    events = [e for e in events_of(5, 70, kinds) if e["about"] not in ("user",)]
    looked = []
    stream = stream_of(5, events, model=even(), keep=4, max_size=4)
    stream.on(lambda alert: alerts.append(alert), flipped=True)

    def label(left_out, kind, node):
        plain = Plain(first(5))
        for place, event in enumerate(events[: stream.position], 1):
            if place not in left_out:
                plain.take(place, event)
        return int(plain.out(even())[kind][node].argmax())

    def subject(event):
        if event["about"] == "film":
            return "film", event["film"]
        ends = {"rates": ("who", "film"), "follows": ("who", "whom")}
        return event["about"], *(event[k] for k in ends.get(event["about"], ("film", "who")))

    while True:
        before, alerts, count = stream.position, [], stream.inc.num_nodes_dict["film"]
        if not stream.step():
            break
        dead = {letter.position for letter in stream.dead_letters}
        names = [event.get("id") for event in events]
        given = [n for n in range(before + 1, stream.position + 1) if n not in dead]
        given = [n for n in given if names[n - 1] is None or names.index(names[n - 1]) == n - 1]
        about = {}
        for n in given:
            about.setdefault(subject(events[n - 1]), []).append(n)
        movable = [s for s in about if s[0] != "film" or s[1] < count]
        for alert in alerts:
            if alert.old == -1:
                continue
            why = stream.why(alert.node, alert.version, type=alert.node_type)
            assert (why.old, why.new) == (alert.old, alert.new)
            assert label((), alert.node_type, alert.node) == alert.new
            least = next(
                (
                    k for k in range(1, 4) for some in itertools.combinations(movable, k)
                    if label({n for s in some for n in about[s]}, alert.node_type, alert.node)
                    == alert.old
                ), None,
            )  # fmt: skip
            places = {event.position for event in why.events}
            if least is None:
                assert not places or len(places) > 3
            else:
                assert len({subject(events[n - 1]) for n in places}) == least, (why, about, alert)
                assert label(places, alert.node_type, alert.node) == alert.old
            looked.append((alert.node_type, least))
    assert {kind for kind, _ in looked} == {"user", "film"}
    assert len(looked) > 4
    with pytest.raises(IncrementalError, match="in node_type"):
        stream.why("u1")


class Films(Recommender):
    def forward(self, x_dict, edge_index_dict, edge_weight_dict):
        return super().forward(x_dict, edge_index_dict, edge_weight_dict)["film"]


def test_looking_back_at_one_type():
    torch.manual_seed(0)
    events = [{"about": "rates", "who": f"u{n}", "film": n, "w": 9.0, "at": 1.0, "id": n,
               "op": "edge_add"} for n in range(4)]  # fmt: skip
    stream = stream_of(0, events, model=Films().double().eval(), keep=4, max_size=1)
    outs = [stream.inc.out.clone()]
    while stream.step():
        outs.append(stream.inc.out.clone())
    for version, out in enumerate(outs):
        assert torch.equal(stream.as_of(version), out)
    with pytest.raises(IncrementalError, match="node 0 did not flip"):
        stream.why(0)

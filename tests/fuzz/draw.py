"""Draws models from the grammar."""

import re

from tests.fuzz.grammar import FAMILIES, ROWS
from tests.fuzz.statement import Drawn, Statement, Type, Variable

# Most of a model is ordinary; how often a family is drawn for an ordinary statement.
ORDINARY = {
    "elementwise": 8, "within a row": 4, "linear": 5, "shapes": 4, "vectors": 1, "back to rows": 1,
    "norms of PyG": 1,
}  # fmt: skip
UNUSUAL = {
    "columns": 2, "graph-wide": 4, "masks": 2, "sizes": 5, "in place": 5, "aliases": 5,
    "made and filled": 2, "to edges": 2, "to nodes": 2, "by hand": 4, "hooks": 4, "subclasses": 3,
    "memory": 2, "branches": 3, "python": 4, "convs in other ways": 3,
}  # fmt: skip
EDGE_INPUTS = ((), (), ("edge_weight",), ("edge_attr",), ("edge_type",),
               ("edge_weight", "edge_attr"), ("edge_weight", "edge_attr", "edge_type"))  # fmt: skip
CHANNELS = 4
MADE = 0.5  # share of models with weights that make edges of their edges
DEAD = 0.1  # share of models that keep statements whose result nothing reads
EFFECTS = ("in place", "aliases", "made and filled", "memory")
WRITES = ("in place", "aliases", "made and filled")
MAKERS = {"{v}": "vectors", "{m}": "columns", "{e}": "to edges", "{q}": "made edges"}
SLOT = re.compile(r"\{(t:)?(\w+)\}")
MAIN = "hnev"


class Author:
    """Writes one model, statement by statement.

    Args:
        rng: A NumPy generator.
        data: Names of the edge inputs; drawn by default.
    """

    def __init__(self, rng, data=None):
        self.rng = rng
        self.data = EDGE_INPUTS[rng.integers(len(EDGE_INPUTS))] if data is None else data
        self.scope = [Variable("x", Type("n", CHANNELS), exact=True)]
        if "edge_attr" in self.data:
            self.scope.append(Variable("edge_attr", Type("e", 3), exact=True))
        self.statements = []
        self.names = 0

    def model(self):
        """A model of one to three convs, ordinary statements, and none to two unusual ones."""
        unusual = int(self.rng.choice(4, p=[0.2, 0.4, 0.3, 0.1]))
        plan = ["convs"] * int(self.rng.integers(1, 4))
        plan += [self._one_of(UNUSUAL) for _ in range(unusual)]
        room = max(1, 9 - len(plan))
        plan += [self._one_of(ORDINARY) for _ in range(self.rng.integers(1, room + 1))]
        self.rng.shuffle(plan)
        for name in plan:
            self.add(name)
        if "edge_weight" in self.data and self.rng.random() < MADE:
            for name in self._over_made_edges():
                self.add(name)
        several = self.rng.random() < 0.25
        self.add("several outputs" if several else "one output", last=True)
        drawn = Drawn(self.data, tuple(self.statements))
        return drawn if self.rng.random() < DEAD else drawn.live(EFFECTS)

    def _over_made_edges(self):
        """Edges made of edges in one to four steps, and one or two convs over some of them."""
        yield from ["made edges"] * int(self.rng.integers(2, 6))
        yield from ["over made edges"] * int(self.rng.integers(1, 3))

    def around(self, op, name):
        """A model of two convs with one operation between them, and what that needs."""
        self.add("convs")
        for slot, family in {
            "{v}": "vectors",
            "{m}": "columns",
            "{e}": "to edges",
            "{q}": "made edges",
        }.items():
            if slot in op.lines:
                self._write(FAMILIES[family][0], family)
        self._write(op, name)
        if not op.lines.startswith("return"):
            self.add("convs")
            self._write(FAMILIES["one output"][0], "one output")
        return Drawn(self.data, tuple(self.statements))

    def _one_of(self, weights):
        share = list(weights.values())
        return str(self.rng.choice(list(weights), p=[s / sum(share) for s in share]))

    def add(self, name, last=False):
        """One statement of a family; nothing where no operation of it finds its operands."""
        found = FAMILIES[name]
        for _ in range(20):
            op = found[self.rng.integers(len(found))]
            if last and self.rng.random() < 0.5:
                op = found[0]  # rows: what most models return
            if set(op.needs) <= set(self.data) and self._write(op, name):
                return

    # One statement ###############################################################################

    def _write(self, op, name):
        slots = {slot for _, slot in SLOT.findall(op.lines + op.init + op.top)}
        chosen = self._operands(slots, op)
        if chosen is None:
            return False
        main = next((chosen[s] for s in MAIN if s in chosen), None)
        self.names += 1
        words = {s: v.name for s, v in chosen.items()}
        width = (main.type.width if main else CHANNELS) or CHANNELS
        out_width = int(self.rng.choice([CHANNELS, CHANNELS, 3, 6]))
        words |= {"w": str(width), "o": str(out_width), "k": str(self.names)}
        words |= {"i": str(self.rng.integers(max(width, 1)))}
        words |= {"size": str(self.rng.choice([1, 2, 5, 20, 23, 24, 60, 100, 400]))}
        words |= {"c": str(round(float(self.rng.uniform(0.2, 0.9)), 2))}
        out = self._out(op, main, width, out_width) if op.gives else None
        stands_in = ""
        if out:
            words["out"] = out.name
            alike = [v for v in self.scope if v.type == out.type]
            of_main = main.name if main and main.type == out.type else ""
            stands_in = of_main or (alike[-1].name if alike else "")
        lines, init, top = (self._filled(t, words) for t in (op.lines, op.init, op.top))
        self.statements.append(
            Statement(op.name, name, lines, init, top, out.name if out else "", stands_in)
        )
        if name in WRITES:  # inputs may have been written to
            for variable in self.scope:
                variable.exact = False
        if out:
            self.scope = [v for v in self.scope if v.name != out.name] + [out]
        return True

    def _operands(self, slots, op):
        """A variable for each slot that stands for one; None if there is none of its kind."""
        chosen = {}
        rows = "n" if "r" in slots else "ne"  # inputs that are compared are rows of nodes
        for slot in sorted(slots & set("hnevmrabqp"), key="hnevmrabqp".index):
            kinds = {
                "h": lambda t: t.rows in rows and t.width,
                "n": lambda t: t.rows == "n" and t.width,
                "e": lambda t: t.rows == "e" and t.width,
                "v": lambda t: t.rows in "ne" and not t.width,
                "m": lambda t: t.rows == "-" and t.width == chosen["h"].type.width,
                "r": lambda t: t == Type("n", CHANNELS),
                "a": lambda t: t.rows in "ne",
                "b": lambda t: t.rows in "ne",
                "q": lambda t: t.rows == "g",
                "p": lambda t: t.rows == "g",
            }[slot]
            found = [v for v in self.scope if kinds(v.type) and (slot != "r" or v.exact)]
            if not found:
                return None
            chosen[slot] = self._recent(found)
        if "g" in slots:
            main = next((chosen[s] for s in MAIN if s in chosen), None)
            chosen["g"] = self._recent([v for v in self.scope if v.type == main.type])
        return chosen

    def _recent(self, found):
        """What was made last, more often than not."""
        back = min(int(self.rng.geometric(0.65)), len(found))
        return found[-back]

    def _out(self, op, main, width, out_width):
        rows = main.type.rows if main else "n"
        if op.gives == "=":
            if self.rng.random() < 0.4 and main.name not in ("x", "edge_attr"):
                return Variable(main.name, main.type)
            return Variable(f"h{self.names}", main.type)
        if op.gives == "v":
            return Variable(f"h{self.names}", Type(rows, 0))
        if op.gives == "m":
            return Variable(f"h{self.names}", Type("-", width))
        given, _, size = op.gives.partition(":")
        columns = {"w": width, "o": out_width, "2w": 2 * width}.get(size) or int(size)
        return Variable(f"h{self.names}", Type(rows if given == "h" else given, columns))

    def _filled(self, template, words):
        def fill(match):
            nested, slot = match.groups()
            if nested:
                return self._expression(words.get(slot, slot), words)
            return words.get(slot, match.group(0))

        return tuple(SLOT.sub(fill, template).splitlines())

    def _expression(self, name, words):
        """A row-wise expression of one variable that needs nothing else."""
        while True:
            op = ROWS["="][self.rng.integers(len(ROWS["="]))]
            if not op.init and "{r}" not in op.lines:
                code = op.lines.partition(" = ")[2]
                return "(" + self._filled(code, {**words, "h": name, "g": name})[0] + ")"


def every_operation():
    """Operations with their families, in a fixed order."""
    return [(op, name) for name, found in sorted(FAMILIES.items()) for op in found]


def operations():
    """Names of all operations of the grammar."""
    return {op.name for found in FAMILIES.values() for op in found}

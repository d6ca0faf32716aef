"""Names in prose lead to the reference: `inc.verify()`, `up.changed`, `to_incremental`."""

import re

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

# What the pages call their objects.
CALLED = {
    "inc": "pyg_incremental.IncrementalModel",
    "up": "pyg_incremental.Update",
    "up.stats": "pyg_incremental.UpdateStats",
    "sampler": "pyg_incremental.sampling.StreamingSampler",
    "cache": "pyg_incremental.sampling.SampleCache",
    "service": "pyg_incremental.sampling.workers.SampleService",
    "stream": "pyg_incremental.stream.Stream",
    "delta": "pyg_incremental.GraphDelta",
}
NAME = re.compile(r"[A-Za-z_][\w.]*(?=$|\(|\[)")


class Link(SphinxPostTransform):
    """Give the first mention of a documented name in each section a link."""

    default_priority = 5  # before references are resolved

    def run(self, **kwargs: object) -> None:
        objects = self.env.domains.python_domain.objects
        ends: dict[str, list[str]] = {}
        for full in objects:
            ends.setdefault(full.rpartition(".")[2], []).append(full)
        seen: set[tuple[int, str]] = set()
        for literal in list(self.document.findall(nodes.literal)):
            if isinstance(literal.parent, nodes.reference | addnodes.pending_xref | nodes.title):
                continue
            found = NAME.match(literal.astext())
            full = found and self._full(found[0], objects, ends)
            section = id(next(iter(_above(literal, nodes.section)), None))
            if not full or (section, full) in seen or self.env.docname == objects[full].docname:
                continue
            seen.add((section, full))
            at = objects[full]
            uri = self.app.builder.get_relative_uri(self.env.docname, at.docname)
            link = nodes.reference("", "", internal=True, refuri=f"{uri}#{at.node_id}")
            link["reftitle"] = full
            literal.replace_self(link)
            link += literal

    @staticmethod
    def _full(name: str, objects: dict, ends: dict[str, list[str]]) -> str | None:
        owner, _, last = name.rpartition(".")
        if owner in CALLED:
            full = f"{CALLED[owner]}.{last}"
            return full if full in objects else None
        # A method without its object, a module function or a class: if only one can be meant.
        candidates = [f for f in ends.get(last, []) if f.endswith(name)]
        classes = [f for f in candidates if f.count(".") <= 3 and objects[f].objtype != "attribute"]
        in_model = f"{CALLED['inc']}.{name}"
        if in_model in objects:
            return in_model
        return classes[0] if len(classes) == 1 else None


def _above(node: nodes.Node, kind: type) -> list[nodes.Node]:
    above = []
    while (node := node.parent) is not None:
        if isinstance(node, kind):
            above.append(node)
    return above


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(Link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

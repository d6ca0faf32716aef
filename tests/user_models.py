"""How models that people write are followed, and what an update takes; before and after a change.

`python -m tests.user_models --out FILE` notes for each example of the zoo how it is followed and
the least time of one update for each kind of delta, and for each conv of one's own that the fuzzer
draws how the models around it are followed. Two such files are compared by
`python -m tests.user_models FILE FILE`.

An older package is measured with these tests: in a folder with links to `tests` and to the older
`pyg_incremental`, which has to be the one that is imported. Times say something only where the two
ran in turns.
"""

import argparse
import json
import time
import warnings
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean

import torch
from torch_geometric.nn import MessagePassing
from tqdm import tqdm

from pyg_incremental import to_incremental
from tests import scene as scenes
from tests.example import INCREMENTAL, ROWS
from tests.fuzz.draw import every_operation
from tests.fuzz.trial import draw_single, run_trial
from tests.zoo import randomise
from tests.zoo_examples import EXAMPLES

TIMED = ("features", "add_edges", "mixed", "delete_edges", "edge_data", "self_loops")
"""Kinds of delta that leave the number of nodes alone."""
WARM_UP = 8


def measured(example, turns):
    """How an example is followed, whether it has a conv of its own, and times in microseconds."""
    torch.manual_seed(0)
    scene = example.scene(0)
    model = randomise(example.make(), 0).double().eval()
    convs = [type(m) for m in model.modules() if isinstance(m, MessagePassing)]
    if example.warm:
        with torch.no_grad():
            example.call(model, scene.arguments())
    inc = to_incremental(model)
    example.call(inc, scene.arguments())
    times = defaultdict(list)
    for turn in range(WARM_UP + turns):
        changes = scenes.Changes(turn)
        for name in (name for name in dict.fromkeys(example.changes) if name in TIMED):
            change = getattr(changes, name)(scene)
            scene = scene.apply(change)
            delta = change.keywords(scene.is_plain)
            began = time.thread_time()
            inc.apply_delta(**delta)
            if turn >= WARM_UP:
                times[name].append(time.thread_time() - began)
    return {
        "own": any(not kind.__module__.startswith("torch_geometric") for kind in convs),
        "way": way_of(inc),
        "us": {name: 1e6 * min(found) for name, found in times.items()},
    }


def way_of(inc):
    """The mode, where recomputed rows are told apart."""
    steps = inc.program.steps if inc.program else ()
    recomputed = any(s.kind == "rows" and ".loop" not in s.output.name for s in steps)
    return ROWS if inc.mode == INCREMENTAL and recomputed else inc.mode


def drawn(draws):
    """For each conv of one's own in the fuzzer's grammar, how models around it are followed."""
    operations = every_operation()
    found = {}
    for at, (op, family) in enumerate(tqdm(operations, desc="fuzzer", disable=None)):
        if family != "subclasses":
            continue
        ways = Counter()
        for turn in range(draws):
            trial = replace(draw_single(at + turn * len(operations)), options={})
            outcome = run_trial(trial)
            ways[outcome.mode or outcome.kind] += 1
        found[op.name] = ways
    return found


def noted(given):
    """What is written to the file."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    scenes.a_graph.__kwdefaults__.update(nodes=given.nodes, edges=given.edges)
    examples = {}
    for example in tqdm(EXAMPLES, desc="zoo", disable=None):
        try:
            examples[str(example)] = measured(example, given.turns)
        except Exception as error:  # an older package may refuse it
            examples[str(example)] = {"way": type(error).__name__, "own": False, "us": {}}
    return {"examples": examples, "own convs": drawn(given.draws)}


def compared(before, after):
    """Lines on two such files: what became of each example, and shares."""
    lines, ways = [], defaultdict(Counter)
    for name, new in after["examples"].items():
        old = before["examples"].get(name, {"way": "absent", "us": {}})
        for at, one in (("before", old), ("after", new)):
            ways[f"examples {at}"][one["way"]] += 1
            if new["own"]:
                ways[f"examples with a conv of their own {at}"][one["way"]] += 1
        ratios = {kind: new["us"][kind] / us for kind, us in old["us"].items() if kind in new["us"]}
        if ratios:
            each = "  ".join(f"{kind} {ratio:.2f}" for kind, ratio in ratios.items())
            mean = geometric_mean(ratios.values())
            lines.append(f"{mean:5.2f}  {name:28} {old['way']} -> {new['way']}  ({each})")
    for at, found in (("before", before), ("after", after)):
        for counts in found["own convs"].values():
            ways[f"models around own convs of the fuzzer {at}"].update(counts)
    lines = sorted(lines, reverse=True)
    for what, counts in ways.items():
        share = counts[INCREMENTAL] / sum(counts.values())
        lines.append(f"{what}: {100 * share:.0f}% incremental, {dict(counts)}")
    return lines


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.user_models", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="two files to compare")
    parser.add_argument("--out", type=Path, help="measure, and write to this file")
    parser.add_argument("--nodes", type=int, default=1000, help="of graphs with one kind of them")
    parser.add_argument("--edges", type=int, default=5000, help="of these graphs")
    parser.add_argument("--turns", type=int, default=14, help="deltas of each kind that count")
    parser.add_argument("--draws", type=int, default=12, help="models around each conv")
    given = parser.parse_args()
    if given.out:
        given.out.write_text(json.dumps(noted(given), indent=1))
    if len(given.files) == 2:
        print("\n".join(compared(*(json.loads(file.read_text()) for file in given.files))))


if __name__ == "__main__":
    main()

"""Threads that read while a stream writes see one version each, never half of one."""

import threading

import torch

from pyg_incremental.sources import IterableSource
from pyg_incremental.stream import Schema, Stream
from tests.stream import scene


def test_eight_readers_beside_a_stream():
    events = scene.events(1, 240, kinds=["edge_add"] * 3 + ["edge_del"] * 2 + ["node"], bad=0)
    inc = scene.called()
    stream = Stream(inc, IterableSource(events), Schema(kind="kind"), max_size=3)
    rows, read, errors = {0: inc.out.clone()}, [], []
    begins, end = threading.Barrier(9), threading.Event()

    def reader(seed):
        generator, last = torch.Generator().manual_seed(seed), -1
        begins.wait(30)
        try:
            while not end.is_set():
                nodes = torch.randint(scene.NODES, (6,), generator=generator)
                version, out = inc.read(nodes)
                read.append((version, nodes, out))
                assert version >= last, "a version from before"
                last = version
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=reader, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    begins.wait(30)
    while stream.step():
        rows[inc.version] = inc.out.clone()
    end.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert len({version for version, *_ in read}) > 10, "they read while it wrote"
    for version, nodes, out in read:
        assert torch.equal(out, rows[version][nodes])
    assert (inc.out - inc.model(inc.x, inc.graph.to_edge_index())).abs().max() < 1e-10

"""Ranks that talk through torch.distributed."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from pyg_incremental.distributed.errors import RankFailedError
from pyg_incremental.distributed.wire.comm import Integers, joined

T = TypeVar("T")


class TorchCommunicator:
    """Ranks of `torch.distributed`, as `torchrun` starts them.

    They get a gloo group of their own, so that nothing else that runs between the same processes
    comes in between. It works on memory of the host.

    Args:
        timeout: Seconds after which a rank that has not answered counts as dead.
        group: A group to use instead, with a time-out of its own; its members are the ranks. What
            goes through an nccl group is copied to the current GPU and back; this has not been
            tried for lack of one.

    Raises:
        RuntimeError: If `torch.distributed.init_process_group` has not been called.
    """

    def __init__(self, timeout: float = 60.0, group: Any = None) -> None:
        if not dist.is_initialized():
            raise RuntimeError(
                "TorchCommunicator: torch.distributed is not initialised; call "
                "torch.distributed.init_process_group('gloo') first, in a program that torchrun "
                "has started"
            )
        self._is_own = group is None
        if group is None:
            group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        self._group: Any = group
        self._device = torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        self.timeout = timeout

    def share(self, row: Integers) -> Integers:
        """Every rank's integers; see `Communicator.share`."""
        mine = torch.from_numpy(row).to(self._device)
        every = [torch.empty_like(mine) for _ in range(self.size)]
        self._run(lambda: dist.all_gather(every, mine, group=self._group))
        shared: Integers = torch.stack(every).cpu().numpy()
        return shared

    def send(self, parts: Sequence[Tensor], counts: Integers) -> list[Tensor]:
        """All-to-all of bytes, uint8 `[n]` for each rank; see `Communicator.send`."""
        sizes_in = counts[:, self.rank].tolist()
        sizes_out = counts[self.rank].tolist()
        given = joined(parts).to(self._device)
        got = torch.empty(sum(sizes_in), dtype=torch.uint8, device=self._device)
        self._run(
            lambda: dist.all_to_all_single(got, given, sizes_in, sizes_out, group=self._group)
        )
        return list(got.cpu().split(sizes_in))

    def _run(self, collective: Callable[[], T]) -> T:
        try:
            return collective()
        except RuntimeError as error:  # gloo has no class of its own for a lost peer
            self.close()  # those who wait for this rank see its connections break
            raise RankFailedError(
                f"rank {self.rank} of {self.size} lost another rank, or waited for more than "
                f"{self.timeout:g} s ({str(error).splitlines()[0]}). Restart the ranks and load "
                "the last save"
            ) from error

    def close(self) -> None:
        """Leave the group, unless it was given."""
        if self._is_own and self._group is not None and dist.is_initialized():
            dist.destroy_process_group(self._group)
        self._group = None

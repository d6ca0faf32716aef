"""What a distributed update reports."""

from dataclasses import dataclass

from pyg_incremental.distributed.boundary.link import Traffic
from pyg_incremental.telemetry.work import UpdateStats


@dataclass
class DistributedStats(UpdateStats):
    """The work of one update on one rank, and what it has sent and received.

    Attributes:
        exchanges: What each exchange of rows has moved, in the order of the steps.
        rounds: Rounds held with the other ranks, those that brought the delta included.
        bytes_sent: Bytes sent to other ranks in all of them.
        bytes_received: Bytes received.
        seconds_waiting: Of `seconds`, the time in the small collective that begins each round:
            mostly waiting for slower ranks.
        seconds_sending: Of `seconds`, the time in moving bytes.
    """

    exchanges: tuple[Traffic, ...] = ()
    rounds: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    seconds_waiting: float = 0.0
    seconds_sending: float = 0.0

    @property
    def seconds_computing(self) -> float:
        """The rest of the time: what this rank computed."""
        return self.seconds - self.seconds_waiting - self.seconds_sending

    @property
    def exchanged_bytes_sent(self) -> int:
        """Bytes of rows that this rank has sent, without what brought the delta."""
        return sum(e.bytes_sent for e in self.exchanges)

    def __str__(self) -> str:
        lines = [super().__str__()]
        for e in self.exchanges:
            lines.append(
                f"{e.name}: {e.rows_sent:,} rows sent ({e.bytes_sent:,} bytes), "
                f"{e.rows_received:,} received ({e.bytes_received:,} bytes)"
            )
        lines.append(
            f"{self.rounds} rounds, {self.bytes_sent:,} bytes sent, {self.bytes_received:,} "
            "received; "
            f"{1e3 * self.seconds_computing:.3f} ms computing, {1e3 * self.seconds_waiting:.3f} ms "
            f"waiting, {1e3 * self.seconds_sending:.3f} ms sending"
        )
        return "\n".join(lines)

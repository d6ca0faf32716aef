"""Events from a stream of NATS JetStream (the `nats` extra)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pyg_incremental.sources.encoded import decoded
from pyg_incremental.sources.log import AT_ONCE, Decode, LogSource
from pyg_incremental.sources.loop_thread import LoopThread

_IDLE = 30.0
"""Seconds after which the server forgets a consumer that nobody asks; it is made again."""


class NatsSource(LogSource):
    """Reads a stream of JetStream; its position is the sequence number of the last message.

    It acknowledges nothing: where it is, is kept in the checkpoints of who reads it. So the stream
    has to keep its messages (`retention='limits'`, which is the default) for as long as they may
    be read again.

    Args:
        servers: The address of a server, such as `'nats://localhost:4222'`, or several.
        stream: The name of the stream.
        subject: Only messages of this subject, which may have wildcards; all by default.
        start: The sequence number behind which to begin; everything that is there by default.
        wait: Seconds to wait for a message where there is none.
        decode: What a message says, such as `json.loads`; what `encoded` has made by default.
        time_field: The field in which each event gets the time at which the stream took it, in
            seconds since 1970: the time of a stream for which events have none of their own.
        options: What `nats.connect` takes otherwise, such as `user_credentials`.

    Raises:
        ImportError: If nats-py is not installed.
        Exception: What nats-py raises where there is no such server or stream.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        stream: str,
        *,
        subject: str | None = None,
        start: int = 0,
        wait: float = 0.1,
        decode: Decode = decoded,
        time_field: str | None = None,
        **options: Any,
    ) -> None:
        try:
            from nats.aio.client import Client
            from nats.js import api
        except ImportError as error:
            raise ImportError(
                "NatsSource needs nats-py, which is not installed; "
                "pip install 'pyg-incremental[nats]'"
            ) from error
        super().__init__(start, decode, time_field)
        self._stream, self._subject, self._wait, self._api = stream, subject, wait, api
        self._loop = LoopThread()
        self._consumer: Any = None
        self._taken, self._may_be_more = 0, False
        self._client = Client()
        try:
            self._loop.run(self._connect({"servers": servers, **options}))
        except BaseException:
            self.close()
            raise

    async def _connect(self, options: dict[str, Any]) -> None:
        await self._client.connect(**options)
        await self._client.jetstream().stream_info(self._stream)

    def open(self, position: int) -> None:
        """See `Source`."""
        super().open(position)
        if self._consumer is not None:
            self._loop.run(self._let_go())

    def _records(self, after: int, wait: bool) -> list[tuple[int, bytes, float]]:
        if not wait and not self._may_be_more:
            return []
        try:
            return self._loop.run(self._fetched(after))
        except BaseException:
            self._consumer = None  # it is made again, from where this one has come to
            raise

    async def _fetched(self, after: int) -> list[tuple[int, bytes, float]]:
        if self._consumer is None:
            await self._begin(after)
        try:
            found = await self._consumer.fetch(AT_ONCE, max(self._wait, 1e-3))
        except asyncio.TimeoutError:
            found = []
            await self._see_that_it_is_there(after)
        self._may_be_more = len(found) == AT_ONCE
        records = []
        for message in found:
            told = message.metadata
            self._taken += 1
            if told.sequence.consumer != self._taken:  # some were lost on their way
                await self._let_go()
                break
            records.append((told.sequence.stream, message.data, told.timestamp.timestamp()))
        return records

    async def _begin(self, after: int) -> None:
        """Ask for the messages behind a position.

        Raises:
            LookupError: If some of them are gone.
        """
        api, stream = self._api, self._client.jetstream()
        state = (await stream.stream_info(self._stream)).state
        if after > state.last_seq or (self._subject is None and 0 < after < state.first_seq - 1):
            raise LookupError(
                f"NatsSource: the stream '{self._stream}' has messages {state.first_seq} to "
                f"{state.last_seq}, and {after + 1} is the next one to read; it must keep messages "
                "until a checkpoint has them"
            )
        config = api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=after + 1,
            ack_policy=api.AckPolicy.NONE, inactive_threshold=_IDLE,
        )  # fmt: skip
        if self._subject is not None:
            config = config.evolve(filter_subject=self._subject)
        name = (await stream.add_consumer(self._stream, config)).name
        self._consumer = await stream.pull_subscribe_bind(name, self._stream)
        self._taken, self._may_be_more = 0, True

    async def _see_that_it_is_there(self, after: int) -> None:
        """A consumer that the server has forgotten is asked in vain: make it again."""
        from nats.js.errors import NotFoundError

        try:
            await self._consumer.consumer_info()
        except NotFoundError:
            await self._begin(after)

    async def _let_go(self) -> None:
        consumer, self._consumer = self._consumer, None
        await consumer.unsubscribe()

    def close(self) -> None:
        """Let go of the connection."""
        if not self._client.is_closed:
            self._loop.run(self._client.close())
        self._loop.close()

"""Frames shared by those who ask for the same: the rollouts of a group all read one overview."""

from __future__ import annotations

import asyncio
import functools
import os
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from paravt_tools.errors import VideoError
from paravt_tools.frames import FrameBatch, read_frames

_Key = tuple[str, int, float, float | None, int, int]

NUM_DECODES = 4
"""Files decoded at the same time. Chosen here: decoders use one thread each, and few cores are free."""

_NUM_THREADS = 32
"""Threads, so that a file that hangs in its decoder takes one of many and not one of ``NUM_DECODES``."""


class FrameCache:
    """Reads frames in threads and keeps what was used last. For use from one event loop at a time.

    A file that changes under the same path is not noticed. Failures are not kept.

    Args:
        max_bytes: most bytes of images and times kept, at least 0; a larger batch is given, but not kept.
        num_decodes: files decoded at the same time, at least 1.
    """

    def __init__(self, max_bytes: int, num_decodes: int = NUM_DECODES):
        if max_bytes < 0:
            raise ValueError(f"max_bytes is {max_bytes}; it must be at least 0")
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._kept: OrderedDict[_Key, FrameBatch] = OrderedDict()
        self._reading: dict[_Key, asyncio.Task[FrameBatch]] = {}
        self._started: dict[_Key, asyncio.Event] = {}
        self._num_decodes = num_decodes
        self._free: asyncio.Semaphore | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Not asyncio's own threads: a file that hangs must not hold up what else runs in those.
        self._threads = ThreadPoolExecutor(max(num_decodes, _NUM_THREADS), thread_name_prefix="frames")

    @property
    def num_bytes(self) -> int:
        """Bytes of images and times that are kept."""
        return self._num_bytes

    async def read(
        self,
        path: str | os.PathLike[str],
        num_frames: int,
        start_seconds: float,
        end_seconds: float | None,
        *,
        min_pixels: int,
        max_pixels: int,
        timeout_seconds: float,
    ) -> FrameBatch:
        """``read_frames`` with the same arguments; the arrays of the batch are shared and read-only.

        Readers of the same frames share one decode. A reader that is cancelled or runs out of time leaves it
        to the others; what it gives is kept for the next.

        Args:
            timeout_seconds: above 0, counted from when the decode starts: who waits behind others for a turn does not
                fail for it.

        Raises:
            VideoError: the file cannot be read, or not in time.
            ValueError: as ``read_frames``.
        """
        key = (os.fspath(path), num_frames, start_seconds, end_seconds, min_pixels, max_pixels)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        loop = asyncio.get_running_loop()
        reading = self._reading.get(key)
        # One that an earlier loop left behind never ends.
        if reading is None or reading.get_loop() is not loop:
            self._started[key] = asyncio.Event()
            reading = loop.create_task(self._decode(key, self._started[key], timeout_seconds))
            self._reading[key] = reading
            reading.add_done_callback(functools.partial(self._finish, key))
        await self._started[key].wait()
        # Unlike wait_for, wait leaves the decode alone when this reader goes.
        await asyncio.wait([reading], timeout=timeout_seconds)
        if not reading.done():
            raise VideoError(path, f"not decoded within {timeout_seconds:g} seconds")
        return reading.result()

    async def _decode(self, key: _Key, started: asyncio.Event, timeout_seconds: float) -> FrameBatch:
        loop = asyncio.get_running_loop()
        if self._free is None or self._loop is not loop:
            self._free, self._loop = asyncio.Semaphore(self._num_decodes), loop
        async with self._free:
            started.set()
            decode = loop.run_in_executor(self._threads, _read, key)
            # One that hangs keeps its thread, but not its turn.
            await asyncio.wait([decode], timeout=timeout_seconds)
        return await decode

    def _finish(self, key: _Key, reading: asyncio.Task[FrameBatch]) -> None:
        if self._reading.get(key) is reading:
            del self._reading[key], self._started[key]
        # Asking for the exception also tells asyncio that it was seen, should every reader have left.
        if reading.cancelled() or reading.exception() is not None:
            return
        batch = reading.result()
        if _num_bytes(batch) > self._max_bytes or key in self._kept:
            return
        self._kept[key] = batch
        self._num_bytes += _num_bytes(batch)
        while self._num_bytes > self._max_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._num_bytes -= _num_bytes(oldest)


def _read(key: _Key) -> FrameBatch:
    path, num_frames, start_seconds, end_seconds, min_pixels, max_pixels = key
    batch = read_frames(path, num_frames, start_seconds, end_seconds, min_pixels=min_pixels, max_pixels=max_pixels)
    batch.images.setflags(write=False)
    batch.timestamps_seconds.setflags(write=False)
    return batch


def _num_bytes(batch: FrameBatch) -> int:
    return batch.images.nbytes + batch.timestamps_seconds.nbytes

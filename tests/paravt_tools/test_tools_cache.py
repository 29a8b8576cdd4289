"""The frame cache: what is decoded how often, by whom it is waited for, and how much is kept."""

import asyncio
import threading
import time

import numpy as np
import pytest

from paravt_tools import FrameBatch, FrameCache, VideoError
from paravt_tools import cache as cache_module

LIMITS = {"min_pixels": 32 * 32, "max_pixels": 128 * 96, "timeout_seconds": 20.0}
BATCH_BYTES = 2 * 32 * 32 * 3 + 2 * 8


class Decoder:
    """Stands in for ``read_frames``; waits for ``go``, fails where the path says so."""

    def __init__(self):
        self.paths = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, path, num_frames, start_seconds, end_seconds, **limits):
        self.paths.append(path)
        assert self.go.wait(20)
        if path == "bad":
            raise VideoError(path, "torn")
        return FrameBatch(np.zeros((2, 32, 32, 3), np.uint8), np.arange(2.0), None)


@pytest.fixture
def decoder(monkeypatch):
    decoder = Decoder()
    monkeypatch.setattr(cache_module, "read_frames", decoder)
    yield decoder
    decoder.go.set()


def read(cache, path="a", start_seconds=0.0, **limits):
    return cache.read(path, 2, start_seconds, None, **{**LIMITS, **limits})


async def test_real_frames_are_read_only_and_shared(plain, frame_numbers):
    cache = FrameCache(1 << 20)
    first = await cache.read(plain, 3, 1.0, 4.0, **LIMITS)
    assert frame_numbers(first.images) == [15, 25, 35]
    for array in (first.images, first.timestamps_seconds):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert await cache.read(str(plain), 3, 1.0, 4.0, **LIMITS) is first
    assert cache.num_bytes == first.images.nbytes + first.timestamps_seconds.nbytes


async def test_readers_of_the_same_frames_share_one_decode(decoder):
    cache = FrameCache(1 << 20)
    decoder.go.clear()
    tasks = [asyncio.create_task(read(cache)) for _ in range(5)]
    await asyncio.sleep(0.05)
    decoder.go.set()
    batches = await asyncio.gather(*tasks)
    assert decoder.paths == ["a"] and all(batch is batches[0] for batch in batches)


async def test_every_argument_counts(decoder):
    cache = FrameCache(1 << 20)
    await read(cache)
    await read(cache, "b")
    await read(cache, start_seconds=1.0)
    await read(cache, min_pixels=2048)
    await read(cache, max_pixels=65536)
    await cache.read("a", 3, 0.0, None, **LIMITS)
    await cache.read("a", 2, 0.0, 5.0, **LIMITS)
    assert len(decoder.paths) == 7


async def test_a_cancelled_reader_leaves_the_others_alone(decoder):
    cache = FrameCache(1 << 20)
    decoder.go.clear()
    first, second = asyncio.create_task(read(cache)), asyncio.create_task(read(cache))
    await asyncio.sleep(0.05)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    decoder.go.set()
    assert len((await second).images) == 2 and decoder.paths == ["a"]


async def test_time_runs_out_for_one_and_the_next_gets_the_frames(decoder):
    cache = FrameCache(1 << 20)
    decoder.go.clear()
    patient = asyncio.create_task(read(cache))
    with pytest.raises(VideoError) as caught:
        await read(cache, timeout_seconds=0.05)
    assert (caught.value.path, caught.value.reason) == ("a", "not decoded within 0.05 seconds")
    decoder.go.set()
    batch = await patient
    assert await read(cache) is batch and decoder.paths == ["a"]


async def test_failures_are_not_kept(decoder):
    cache = FrameCache(1 << 20)
    for _ in range(2):
        results = await asyncio.gather(read(cache, "bad"), read(cache, "bad"), return_exceptions=True)
        assert [str(error) for error in results] == ["bad: torn"] * 2
    assert decoder.paths == ["bad", "bad"] and cache.num_bytes == 0


async def test_what_was_used_last_is_kept_within_the_limit(decoder):
    cache = FrameCache(2 * BATCH_BYTES)
    for path in ("a", "b", "a", "c"):
        await read(cache, path)
    assert cache.num_bytes == 2 * BATCH_BYTES and decoder.paths == ["a", "b", "c"]
    await read(cache, "a")
    assert decoder.paths == ["a", "b", "c"]
    await read(cache, "b")
    assert decoder.paths == ["a", "b", "c", "b"]


async def test_a_batch_above_the_limit_is_given_but_not_kept(decoder):
    cache = FrameCache(BATCH_BYTES - 1)
    assert len((await read(cache)).images) == 2
    await read(cache)
    assert cache.num_bytes == 0 and decoder.paths == ["a", "a"]


async def test_the_event_loop_is_never_blocked(decoder):
    cache = FrameCache(1 << 20)
    decoder.go.clear()
    tasks = [asyncio.create_task(read(cache, str(number))) for number in range(20)]
    longest, last = 0.0, time.monotonic()
    for _ in range(30):
        await asyncio.sleep(0.005)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert longest < 0.3 and not any(task.done() for task in tasks)
    decoder.go.set()
    await asyncio.gather(*tasks)
    assert len(decoder.paths) == 20


def test_a_later_event_loop_can_use_the_same_cache(decoder):
    cache = FrameCache(1 << 20)
    decoder.go.clear()
    with pytest.raises(VideoError):
        asyncio.run(read(cache, timeout_seconds=0.05))
    decoder.go.set()
    assert len(asyncio.run(read(cache)).images) == 2


def test_a_bad_limit():
    with pytest.raises(ValueError, match="max_bytes"):
        FrameCache(-1)


async def test_who_waits_for_a_turn_does_not_run_out_of_time(decoder):
    cache = FrameCache(1 << 20, num_decodes=1)
    decoder.go.clear()
    first = asyncio.create_task(read(cache, "a", timeout_seconds=5.0))
    queued = asyncio.create_task(read(cache, "b", timeout_seconds=0.3))
    await asyncio.sleep(0.6)
    decoder.go.set()
    await first
    assert (await queued) is not None and decoder.paths == ["a", "b"]

"""Calls of one turn at once: overlap, order, and what goes wrong in one of them."""

import asyncio
import logging
import time

import pytest

from paravt_tools import ToolArgumentError, VideoError, dispatch_calls
from reward_fns.grammar import ToolCall

LIMITS = {"max_parallel": 8, "timeout_seconds": 5.0}


def call(number, position=0):
    return ToolCall("crop_video", {"start_time": number, "end_time": number + 1}, (position, position + 1))


async def test_calls_overlap_and_results_keep_their_order():
    events = []
    all_began = asyncio.Event()

    async def run_one(one):
        number = one.arguments["start_time"]
        events.append(("begin", number))
        if sum(kind == "begin" for kind, _ in events) == 3:
            all_began.set()
        await all_began.wait()
        # The last ends first.
        await asyncio.sleep(0.03 * (3 - number))
        events.append(("end", number))
        return f"saw {number}"

    calls = [call(0), call(1), call(2)]
    results = await dispatch_calls(calls, run_one, **LIMITS)
    assert events == [("begin", 0), ("begin", 1), ("begin", 2), ("end", 2), ("end", 1), ("end", 0)]
    assert [result.text for result in results] == ["saw 0", "saw 1", "saw 2"]
    assert [result.call for result in results] == calls
    assert all(result.executed and result.error_kind is None for result in results)
    assert results[0].elapsed_seconds > results[2].elapsed_seconds > 0


class Odd(Exception):
    kind = "odd"


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ToolArgumentError("start_time is 9"), "arguments", "start_time is 9"),
        (VideoError("/secret/v.mp4", "cut off"), "video", "cut off"),
        (TimeoutError(), "timeout", "in time"),
        (TypeError("bad\nthing"), "failed", "TypeError: bad thing"),
        (ValueError("empty"), "failed", "empty"),
        (Odd("strange"), "odd", "strange"),
        (asyncio.CancelledError(), "failed", "cancelled"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
async def test_an_error_is_a_result_and_the_others_go_on(error, kind, words, caplog):
    async def run_one(one):
        if one.arguments["start_time"] == 1:
            raise error
        await asyncio.sleep(0.02)
        return "fine"

    with caplog.at_level(logging.ERROR):
        first, bad, last = await dispatch_calls([call(0), call(1), call(2)], run_one, **LIMITS)
    assert first.text == last.text == "fine" and first.executed and last.executed
    assert bad.text.startswith("Error: ") and words in bad.text and "\n" not in bad.text
    assert (bad.executed, bad.error_kind) == (False, kind)
    assert "secret" not in bad.text
    is_fault = kind == "failed" and not isinstance(error, asyncio.CancelledError)
    assert [record.exc_info is not None for record in caplog.records] == ([True] if is_fault else [])


async def test_a_slow_call_is_cancelled_and_the_others_are_not():
    cancelled = []

    async def run_one(one):
        if one.arguments["start_time"] == 0:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(0)
                raise
        return "fine"

    slow, quick = await dispatch_calls([call(0), call(1)], run_one, max_parallel=2, timeout_seconds=0.1)
    assert (slow.executed, slow.error_kind, cancelled) == (False, "timeout", [0])
    assert slow.text == "Error: no result within 0.1 seconds" and slow.elapsed_seconds >= 0.1
    assert quick.text == "fine" and quick.elapsed_seconds < 0.1


async def test_a_call_that_ignores_its_cancellation_holds_nothing_up():
    async def run_one(one):
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            try:
                await asyncio.sleep(1.5)
            except asyncio.CancelledError:
                continue
        return "late"

    started = time.monotonic()
    (result,) = await dispatch_calls([call(0)], run_one, max_parallel=1, timeout_seconds=0.05)
    assert result.error_kind == "timeout" and time.monotonic() - started < 1.4


@pytest.mark.parametrize("max_parallel", [0, 2])
async def test_calls_past_the_limit_never_run(max_parallel):
    ran = []

    async def run_one(one):
        ran.append(one.arguments["start_time"])
        return "fine"

    results = await dispatch_calls(
        [call(number) for number in range(4)], run_one, max_parallel=max_parallel, timeout_seconds=5
    )
    assert ran == list(range(max_parallel))
    assert [result.executed for result in results] == [number < max_parallel for number in range(4)]
    for result in results[max_parallel:]:
        assert result.text.startswith("Error: not executed, ") and str(max_parallel) in result.text
        assert (result.error_kind, result.elapsed_seconds) == ("over_limit", 0.0)


async def test_identical_calls_run_once():
    ran = []

    async def run_one(one):
        ran.append(one)
        return f"run {len(ran)}"

    swapped = ToolCall("crop_video", {"end_time": 1, "start_time": 0}, (7, 8))
    calls = [call(0, 0), call(1, 3), call(0, 5), swapped]
    results = await dispatch_calls(calls, run_one, **LIMITS)
    assert len(ran) == 2
    assert results[0].text == results[2].text == results[3].text != results[1].text
    assert [result.call.span for result in results] == [one.span for one in calls]


async def test_cancelling_the_dispatch_cancels_its_calls():
    begun, cancelled = [], []

    async def run_one(one):
        begun.append(one)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(one)
            raise

    task = asyncio.create_task(dispatch_calls([call(0), call(1)], run_one, **LIMITS))
    while len(begun) < 2:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(cancelled) == 2
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_call_that_gives_no_text_is_a_fault():
    async def run_one(one):
        return None

    (result,) = await dispatch_calls([call(0)], run_one, **LIMITS)
    assert result.error_kind == "failed" and "NoneType" in result.text


async def test_no_calls():
    assert await dispatch_calls([], None, **LIMITS) == []


@pytest.mark.parametrize("bad", [{"max_parallel": -1}, {"timeout_seconds": 0}, {"timeout_seconds": float("nan")}])
async def test_bad_limits(bad):
    with pytest.raises(ValueError, match="max_parallel"):
        await dispatch_calls([], None, **{**LIMITS, **bad})

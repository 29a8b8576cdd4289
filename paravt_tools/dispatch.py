"""The calls of one turn, all at once: each ends in a result that the model can read."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from reward_fns import transcript
from reward_fns.grammar import ToolCall

logger = logging.getLogger(__name__)

ERROR_PREFIX = f"{transcript.ERROR_PREFIX} "
"""Begins the text of every call without a result; rewards know a call that was not executed by it."""

_CANCEL_SECONDS = 1.0
"""How long a cancelled call may clean up before it is left behind. Chosen here."""

_MAX_ERROR_CHARS = 500
"""How much of an error's text the model is shown. Chosen here: the longest of ours has about 250."""


@dataclass(frozen=True)
class ToolResult:
    """What became of one call.

    Attributes:
        text: what the model reads; begins with ``Error: `` exactly where ``error_kind`` is set.
        executed: whether the call ran to its end and gave a text.
        error_kind: none, or ``arguments``, ``video``, ``timeout``, ``over_limit``, ``failed``, or the
            ``kind`` of the exception.
        elapsed_seconds: wall-clock time of the call; 0 where it never ran.
    """

    call: ToolCall
    text: str
    executed: bool
    error_kind: str | None
    elapsed_seconds: float


async def dispatch_calls(
    calls: Sequence[ToolCall],
    run_one: Callable[[ToolCall], Awaitable[str]],
    *,
    max_parallel: int,
    timeout_seconds: float,
) -> list[ToolResult]:
    """Runs the calls of one turn at the same time.

    Calls past the first ``max_parallel`` never run. Calls with the same name and arguments run once and share
    the result. A call that raises, is cancelled from inside or takes longer than ``timeout_seconds`` leaves
    the others alone. Where the dispatch itself is cancelled, its calls are cancelled with it.

    Args:
        run_one: gives the text of one call. An exception with an attribute ``kind`` is an error of the call;
            another one is a fault of the program, which is logged.
        max_parallel: at least 0.
        timeout_seconds: above 0; for each call, counted from the dispatch, since all begin at once.

    Returns:
        One result for each call, in the order of ``calls``.
    """
    if max_parallel < 0 or not timeout_seconds > 0:
        raise ValueError(
            f"max_parallel is {max_parallel}, timeout_seconds is {timeout_seconds}; at least 0 and above 0"
        )
    started = time.monotonic()
    tasks: dict[str, asyncio.Task[ToolResult]] = {}
    for call in calls[:max_parallel]:
        key = _key(call)
        if key not in tasks:
            tasks[key] = asyncio.ensure_future(_run(call, run_one))
    late: set[asyncio.Task[ToolResult]] = set()
    try:
        if tasks:
            _, late = await asyncio.wait(tasks.values(), timeout=timeout_seconds)
    finally:
        # Those that are late, or all of them where this was cancelled.
        await _cancel([task for task in tasks.values() if not task.done()])
    waited_seconds = time.monotonic() - started
    results = []
    for number, call in enumerate(calls):
        if number >= max_parallel:
            limit = f"not executed, {max_parallel} calls a turn is the limit"
            results.append(_failure(call, limit, "over_limit", 0.0))
            continue
        task = tasks[_key(call)]
        if task in late or task.cancelled():
            results.append(_failure(call, f"no result within {timeout_seconds:g} seconds", "timeout", waited_seconds))
        else:
            results.append(replace(task.result(), call=call))
    return results


def _key(call: ToolCall) -> str:
    """Equal for calls that ask for the same; where the call stands in the text does not matter."""
    return json.dumps([call.name, call.arguments], sort_keys=True, default=repr)


async def _run(call: ToolCall, run_one: Callable[[ToolCall], Awaitable[str]]) -> ToolResult:
    started = time.monotonic()
    try:
        # In a task of its own, so that a call that cancels itself differs from one that is cancelled.
        inner: asyncio.Future[str] = asyncio.ensure_future(run_one(call))
        try:
            await asyncio.wait([inner])
        finally:
            if not inner.done():
                inner.cancel()
                await asyncio.wait([inner])
        if inner.cancelled():
            return _failure(call, "the call was cancelled", "failed", time.monotonic() - started)
        text = inner.result()
        if not isinstance(text, str):
            raise TypeError(f"the call gave a {type(text).__name__}, not text")
    except Exception as error:
        reason, kind = _describe(error)
        if kind == "failed":
            logger.exception("call %s failed", call)
        return _failure(call, reason, kind, time.monotonic() - started)
    return ToolResult(call, text, True, None, time.monotonic() - started)


def _describe(error: Exception) -> tuple[str, str]:
    """Text for the model and kind of an error."""
    kind = getattr(error, "kind", None)
    if isinstance(kind, str):
        # A path says nothing to the model, and would make its tokens depend on the machine.
        return str(getattr(error, "reason", error)), kind
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return "no result in time", "timeout"
    return f"the call failed ({type(error).__name__}: {error})", "failed"


def _failure(call: ToolCall, reason: str, kind: str, elapsed_seconds: float) -> ToolResult:
    line = " ".join(reason.split())[:_MAX_ERROR_CHARS]
    return ToolResult(call, ERROR_PREFIX + line, False, kind, elapsed_seconds)


async def _cancel(tasks: Sequence[asyncio.Task[ToolResult]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        _, stuck = await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)
        if stuck:
            logger.warning("%d calls go on after they were cancelled", len(stuck))

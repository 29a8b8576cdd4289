"""What a person sees of a run, beside the log that holds everything.

verl, Ray and vLLM print some hundred lines a minute. Here the descriptors of stdout and stderr are turned into a file
(so that also daemons and C++ write there), and a thread shows what matters of it.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, TextIO

from tqdm import tqdm

from recipe.paravt.lifecycle.log_lines import OURS, LogFilter

_POLL_SECONDS = 0.5
_MAX_LOG_LINES = 40
"""Of warnings, and as many of errors, shown in a run; chosen here."""


class Console:
    """Context manager: what this process and its children print goes into a log, and what matters to the console.

    Where stdout or stderr already is that file, nothing is redirected.

    Args:
        log: the file; it is added to. Its folder must be there.
        verbose: show everything.
        follow: whether this process shows anything (one of several that share a log does).
    """

    def __init__(self, log: Path, *, verbose: bool = False, follow: bool = True):
        self.log = log
        self.is_terminal = os.isatty(1)
        self._verbose = verbose
        self._follows = follow
        self._filter = LogFilter(_MAX_LOG_LINES)
        self._said: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="console", daemon=True)
        self._bar: tqdm[None] | None = None
        self.look: Callable[[], None] = lambda: None
        """Called every half second by the console's thread."""

    def __enter__(self) -> Console:
        self._file = self.log.open("ab", buffering=0)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        same = [os.path.sameopenfile(self._file.fileno(), descriptor) for descriptor in (1, 2)]
        self._redirects = not any(same)
        self._out, self._err = _duplicate(1, sys.stdout), _duplicate(2, sys.stderr)
        if self._redirects:
            command = shlex.join(sys.orig_argv)
            self._file.write(f"\n==== {time.strftime('%Y-%m-%d %H:%M:%S')}  {command}\n".encode(errors="replace"))
            for descriptor in (1, 2):
                os.dup2(self._file.fileno(), descriptor)
        self._reader = self.log.open("rb")
        self._reader.seek(0, os.SEEK_END)
        self._rest = b""
        if self._follows:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()
        if self._filter.num_left_out:
            self.say(f"{OURS} {self._filter.num_left_out} further warnings and errors are in {self.log}")
        if self._redirects:
            os.dup2(self._out.fileno(), 1)
            os.dup2(self._err.fileno(), 2)
        for file in (self._out, self._err, self._file, self._reader):
            with contextlib.suppress(OSError):  # a pipe that nobody reads any more
                file.close()

    def finish(self) -> None:
        """Shows what was printed until now and ends the bar; only what is said is shown after it."""
        if self._ended.is_set():
            return
        self._ended.set()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):  # the disk of the log is full
                stream.flush()
        if self._follows:
            self._thread.join()
            self._look()
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.close()

    @property
    def stderr(self) -> IO[str]:
        """The real one."""
        return self._err

    def say(self, text: str, *, error: bool = False) -> None:
        """Shows a text, on stdout or on stderr, and puts it into the log."""
        with self._lock:
            for line in text.splitlines():
                self._filter.is_new(line)
                self._said[line] += 1
            self._show(text, self._err if error else self._out)
            if self._redirects:
                with contextlib.suppress(OSError):  # a full disk, which is what may be said here
                    self._file.write(f"{text}\n".encode(errors="replace"))

    def advance(self, step: int, num_steps: int, text: str) -> None:
        """A step is done: the bar moves where stdout is a terminal, else a line says it.

        Args:
            num_steps: 0 where it is not known.
        """
        of_all = f"/{num_steps}" if num_steps else ""
        if not self.is_terminal:
            self.say(f"{OURS} step {step}{of_all}  {text}")
            return
        with self._lock:
            if self._bar is None:
                self._bar = tqdm(total=num_steps or None, initial=step - 1, file=self._out, dynamic_ncols=True)
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(step - self._bar.n)

    def _show(self, text: str, stream: IO[str]) -> None:
        with self._lock, contextlib.suppress(OSError):  # a terminal that is gone must not end the run
            if self._bar is not None:
                self._bar.clear()
            stream.write(f"{text}\n")
            stream.flush()
            if self._bar is not None:
                self._bar.refresh()

    def _show_what_is_new(self) -> None:
        # A progress bar's states are parted by \r.
        *lines, self._rest = (self._rest + self._reader.read()).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            if self._said[text]:
                self._said[text] -= 1  # shown when it was said
                continue
            shown = text if self._verbose else self._filter.pick(text)
            if shown is not None and self._redirects:
                self._show(shown, self._err)

    def _watch(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            self._look()

    def _look(self) -> None:
        self._show_what_is_new()
        try:
            self.look()
        except Exception:
            # Once: what is shown of a run must not end it, nor hide its warnings.
            traceback.print_exc()
            self.look = lambda: None


def print_any_character() -> None:
    """Lets stdout and stderr print as escapes what they cannot encode (an ASCII locale: κ, paths), or nowhere."""
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:  # closed by who started this process
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
            setattr(sys, name, open(descriptor, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _duplicate(descriptor: int, stream: TextIO) -> IO[str]:
    """A stream of its own on what a descriptor is now, which prints what it cannot encode as escapes."""
    return os.fdopen(os.dup(descriptor), "w", encoding=stream.encoding, errors="backslashreplace")

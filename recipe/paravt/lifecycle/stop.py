"""A run that is asked to end: SIGTERM, which a cluster sends before it takes the machine away."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

from recipe.paravt import verl_adapter
from recipe.paravt.lifecycle import progress


class StoppableRunner:
    """verl's task runner; from its start on SIGTERM ends the run after the current step, with a checkpoint.

    ``ray.init``, which verl calls before it starts the runner, puts a handler of its own in place.
    """

    exit_code = 128 + signal.SIGTERM

    def __init__(self) -> None:
        self.stop_asked = False
        self.ends_now = False

    def remote(self) -> Any:
        """As verl calls its task runner."""
        self.handle_sigterm()
        return verl_adapter.task_runner().remote()

    def options(self, **options: Any) -> Any:
        """As verl calls its task runner when it is profiled."""
        self.handle_sigterm()
        return verl_adapter.task_runner().options(**options)

    def handle_sigterm(self) -> None:
        """Puts the handler in place; in the main thread."""
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, *_: object) -> None:
        if self.stop_asked:
            self.ends_now = True
            print("[paravt] SIGTERM: ending now", file=sys.stderr, flush=True)
            # Ray makes this of whatever a handler raises while it waits.
            raise KeyboardInterrupt
        self.stop_asked = True
        # Not here: the handler runs between two bytecodes of a thread that may hold Ray's locks.
        threading.Thread(target=self._ask, daemon=True).start()

    def _ask(self) -> None:
        step = progress.current().step
        if step == 0:
            # Nothing to save yet.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            return
        print(
            f"[paravt] SIGTERM: a checkpoint will be saved when step {step} ends, then the run ends. "
            "A second SIGTERM ends it at once",
            file=sys.stderr,
            flush=True,
        )
        progress.request_stop()

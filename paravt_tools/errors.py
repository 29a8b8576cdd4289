"""What can be wrong with a call or with a file. Both are data of a rollout, not faults of the program."""

from __future__ import annotations

import os


class ToolArgumentError(ValueError):
    """Arguments of a call that name nothing legal; its text is written for the model that made the call.

    Attributes:
        kind: what ``dispatch_calls`` puts into ``ToolResult.error_kind``.
    """

    kind = "arguments"


class VideoError(Exception):
    """A file of which no frames can be had; its text is ``<path>: <reason>``.

    Attributes:
        path: the file, as it was given.
        reason: what is wrong with it, on one line.
        kind: what ``dispatch_calls`` puts into ``ToolResult.error_kind``.
    """

    kind = "video"

    def __init__(self, path: str | os.PathLike[str], reason: str):
        # Both go to Exception, which pickles by calling the class with them.
        super().__init__(os.fspath(path), reason)
        self.path = os.fspath(path)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"

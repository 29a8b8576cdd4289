"""What a command reports to its user, apart from faults of the program."""

from __future__ import annotations


class InputError(ValueError):
    """A setting or a file cannot be used; the message names it, what is wrong and what would be right."""


class Rejection(Exception):
    """One annotation cannot become a row.

    Args:
        reason: a word of the reasons that the table and the manifest count, such as ``missing_field``.
        detail: what was found, for ``rejected.jsonl``.
    """

    def __init__(self, reason: str, detail: str):
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail

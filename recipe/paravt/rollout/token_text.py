"""Text of sampled token ids, and which tokens a range of its characters lies in.

Ids are never encoded again: the bytes of each id come from the tokenizer's vocabulary, so the ranges hold for what
was sampled, also where a tag is split over tokens, a character over bytes, or the bytes are no valid UTF-8.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


def _byte_of_symbol() -> dict[str, int]:
    """The inverse of GPT-2's table, in which every byte has a printable character."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    return table | {chr(256 + offset): byte for offset, byte in enumerate(others)}


_BYTE_OF_SYMBOL = _byte_of_symbol()


@dataclass(frozen=True)
class TokenText:
    """The text of a sequence of ids.

    Attributes:
        text: the decoded text; bytes that are no UTF-8 become U+FFFD, as the tokenizer's own decoder does.
        ends: for each token the number of characters that are complete after it. Token ``i`` covers the
            characters ``[ends[i - 1], ends[i])``; an empty range means that it ends inside a character.
    """

    text: str
    ends: tuple[int, ...]

    def tokens_within(self, start: int, end: int) -> list[int]:
        """Positions of the tokens that lie wholly inside the characters ``[start, end)``.

        If there are none, the one that ends the range (Qwen's vocabulary has tokens such as ``.</``, which hold
        content too). An empty range gives the last token at or before it.

        Returns:
            Ascending positions; empty only where there are no tokens at all.
        """
        inside = [
            index
            for index, stop in enumerate(self.ends)
            if (self.ends[index - 1] if index else 0) >= start and stop <= end and self._covers(index)
        ]
        if inside:
            return inside
        for index, stop in enumerate(self.ends):
            if stop >= end and self._covers(index):
                return [index]
        return [len(self.ends) - 1] if self.ends else []

    def _covers(self, index: int) -> bool:
        return self.ends[index] > (self.ends[index - 1] if index else 0)


class TokenDecoder:
    """Decodes ids of one byte-level BPE tokenizer (all of Qwen's are).

    Args:
        tokenizer: a Hugging Face tokenizer; its added tokens stand for their own content.
    """

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._added = {index: token.content for index, token in tokenizer.added_tokens_decoder.items()}
        self._bytes: dict[int, bytes] = {}

    def bytes_of(self, token_id: int) -> bytes:
        """The bytes that a token stands for; empty for an id that the tokenizer does not know."""
        known = self._bytes.get(token_id)
        if known is None:
            if token_id in self._added:
                known = self._added[token_id].encode()
            else:
                symbols = self._tokenizer.convert_ids_to_tokens(token_id) or ""
                known = bytes(_BYTE_OF_SYMBOL[symbol] for symbol in symbols)
            self._bytes[token_id] = known
        return known

    def decode(self, token_ids: Sequence[int]) -> TokenText:
        """Text and per-token character ends of ``token_ids``."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        pieces: list[str] = []
        ends: list[int] = []
        length = 0
        for position, token_id in enumerate(token_ids):
            piece = decoder.decode(self.bytes_of(token_id), final=position == len(token_ids) - 1)
            pieces.append(piece)
            length += len(piece)
            ends.append(length)
        return TokenText("".join(pieces), tuple(ends))

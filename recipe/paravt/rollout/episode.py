"""The append-only ledger of one conversation: ids, masks, log-probabilities, media.

Token in, token out: what the model sampled is kept as sampled, what was put in is appended, and nothing is ever
rendered again or cut out, so the ids of turn k are a prefix of those of turn k + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recipe.paravt.rollout.token_text import TokenDecoder, TokenText


@dataclass(frozen=True)
class AssistantTurn:
    """One assistant turn, as positions in the response.

    Attributes:
        start: position of its first token (of the forced prefix, where there is one) in the response ids.
        forced: how many of its tokens were forced.
        sampled: how many tokens the model sampled, the end-of-turn token not counted.
        content: text of forced and sampled tokens together, with character ends per token.
    """

    start: int
    forced: int
    sampled: int
    content: TokenText

    @property
    def text(self) -> str:
        return self.content.text

    def response_positions(self, start: int, end: int) -> list[int]:
        """Response positions of the *sampled* tokens of the characters ``[start, end)``; see ``tokens_within``."""
        return [self.start + position for position in self.content.tokens_within(start, end) if position >= self.forced]


class Episode:
    """One conversation of one agent.

    Args:
        builder: verl's continuous-token builder for this model (renders only what is new).
        decoder: the tokenizer's ``TokenDecoder``.
        end_of_turn_id: ends a turn (``<|im_end|>``); it belongs to the ids, not to the turn's text.
        messages: the first messages, with ``{"type": "image"}`` items for the frames.
        images: the frames, in the order of the items.
        tools: the tools' schemas, or none.

    Attributes:
        mm_inputs: what the processor made of the images (``pixel_values``, ``image_grid_thw``, …).
    """

    def __init__(
        self,
        builder: Any,
        decoder: TokenDecoder,
        end_of_turn_id: int,
        messages: list[dict[str, Any]],
        images: list[Any],
        tools: list[dict[str, Any]] | None,
    ):
        self._builder = builder
        self._decoder = decoder
        self._end_of_turn_id = end_of_turn_id
        self._tools = tools
        self.messages = messages
        self.images = images
        self.mm_inputs: dict[str, Any] = {}
        self.prompt_ids: list[int] = list(
            builder.build_initial_tokens(messages, tools=tools, images=images, mm_inputs_out=self.mm_inputs)
        )
        self.response_ids: list[int] = []
        self.response_mask: list[int] = []
        self.response_log_probs: list[float] = []
        self.turns: list[AssistantTurn] = []

    @property
    def ids(self) -> list[int]:
        """All ids so far: what the server gets."""
        return self.prompt_ids + self.response_ids

    def append_turn(
        self, forced_ids: Sequence[int], token_ids: Sequence[int], log_probs: Sequence[float]
    ) -> AssistantTurn:
        """Adds a turn: the forced tokens (no loss), then the sampled ones.

        Args:
            forced_ids: tokens that were put after the generation prompt before sampling.
            token_ids: the sampled tokens, end-of-turn token included where it was sampled.
            log_probs: one log-probability per sampled token.
        """
        if len(log_probs) != len(token_ids):
            raise ValueError(f"{len(token_ids)} sampled tokens came with {len(log_probs)} log-probabilities")
        start = len(self.response_ids)
        self._append(forced_ids, mask=0)
        self.response_ids.extend(token_ids)
        self.response_mask.extend([1] * len(token_ids))
        self.response_log_probs.extend(log_probs)
        content = list(token_ids)
        while content and content[-1] == self._end_of_turn_id:
            content.pop()
        turn = AssistantTurn(start, len(forced_ids), len(content), self._decoder.decode([*forced_ids, *content]))
        self.turns.append(turn)
        self.messages = [*self.messages, {"role": "assistant", "content": turn.text}]
        return turn

    def context_ids(self, new_messages: list[dict[str, Any]]) -> list[int]:
        """The ids that ``append_context`` would add, generation prompt included; changes nothing."""
        merged = self._builder.merge_context_tokens(
            self.messages, [*self.messages, *new_messages], self._closed_ids(), tools=self._tools
        )
        return merged.token_ids[len(self.ids) :]

    def append_context(self, new_messages: list[dict[str, Any]], ids: Sequence[int]) -> None:
        """Adds tool or user messages with the ids that ``context_ids`` gave for them; none carries loss."""
        self._append(ids, mask=0)
        self.messages = [*self.messages, *new_messages]

    def _closed_ids(self) -> list[int]:
        # A turn that the token limit cut has no end-of-turn token of its own; the template needs one.
        ids = self.ids
        if self.response_ids and self.response_ids[-1] != self._end_of_turn_id:
            ids.append(self._end_of_turn_id)
        return ids

    def _append(self, ids: Sequence[int], mask: int) -> None:
        self.response_ids.extend(ids)
        self.response_mask.extend([mask] * len(ids))
        self.response_log_probs.extend([0.0] * len(ids))

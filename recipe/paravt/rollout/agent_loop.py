"""The agent loop ``paravt_agent``: verl's side of a rollout (``session.py`` holds its turns)."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import time
from typing import Any
from uuid import uuid4

from PIL import Image
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from paravt_tools import FrameBatch, FrameCache
from recipe.paravt import verl_adapter
from recipe.paravt.rollout.backend import Sampled, SessionFailure
from recipe.paravt.rollout.dataset import Sample
from recipe.paravt.rollout.episode import Episode
from recipe.paravt.rollout.record import rollout_record
from recipe.paravt.rollout.scoring import Scorer
from recipe.paravt.rollout.session import Session, TokenLimits, count_image_runs
from recipe.paravt.rollout.token_text import TokenDecoder
from recipe.paravt.settings import ParaVTSettings

logger = logging.getLogger(__name__)


@functools.lru_cache(maxsize=1)
def _shared_cache(max_bytes: int) -> FrameCache:
    """One frame cache for all agent loops of a process: the rollouts of a group read the same overview."""
    return FrameCache(max_bytes)


@functools.lru_cache(maxsize=1)
def _shared_decoder(tokenizer: Any) -> TokenDecoder:
    return TokenDecoder(tokenizer)


class ParaVTAgentLoop(AgentLoopBase):
    """verl makes one instance for each rollout."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.settings = ParaVTSettings.from_config(verl_adapter.to_container(self.config.paravt))
        # Plain containers: the processor takes entries out of what it is given, which OmegaConf refuses.
        kwargs_node: Any = self.mm_processor_kwargs  # type: ignore[has-type]
        self.mm_processor_kwargs = verl_adapter.to_container(kwargs_node)
        self.continuous_token_builder = verl_adapter.token_builder(
            self.tokenizer, self.processor, self.mm_processor_kwargs
        )
        self._decoder = _shared_decoder(self.tokenizer)
        self._end_of_turn_id = self.tokenizer.convert_tokens_to_ids("<|im_end|>")
        self._media_ids = {self.processor.image_token_id, self.processor.video_token_id}
        self._sampling_params: dict[str, Any] = {}
        self._rollout_name = ""
        self._generate_seconds = 0.0
        self._weight_versions: list[int] = []

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Runs one rollout.

        Args:
            sampling_params: temperature and the like, the same for the main agent and its sub-agents.
            row: columns of ``ParaVTDataset`` and verl's ``uid``, ``session_id`` and ``global_steps``.

        Returns:
            The main agent's trajectory with its reward.
        """
        self._sampling_params = dict(sampling_params)
        self._rollout_name = f"{row['uid']}/{row['session_id']}"
        sample = Sample.from_row(row, self.settings)
        rollout = self.rollout_config
        session = Session(
            sample=sample,
            settings=self.settings,
            limits=TokenLimits(
                rollout.prompt_length,
                rollout.response_length,
                rollout.max_model_len or rollout.prompt_length + rollout.response_length,
            ),
            backend=self,
            forced_ids=self.tokenizer.encode(self.settings.forced_prefix, add_special_tokens=False),
        )
        await session.run()
        assert session.episode is not None  # run() leaves one, or raises where not even a blank one can be made
        return self._output(session, session.episode, row)

    async def read_frames(
        self,
        video_path: str,
        num_frames: int,
        start_seconds: float,
        end_seconds: float | None,
        *,
        min_pixels: int,
        max_pixels: int,
    ) -> FrameBatch:
        return await _shared_cache(self.settings.cache_bytes).read(
            video_path,
            num_frames,
            start_seconds,
            end_seconds,
            min_pixels=min_pixels,
            max_pixels=max_pixels,
            timeout_seconds=self.settings.limits.read_seconds,
        )

    async def new_episode(
        self, messages: list[dict[str, Any]], frames: FrameBatch, *, tools: list[dict[str, Any]] | None
    ) -> Episode:
        images = [Image.fromarray(frame) for frame in frames.images]
        # The processor takes milliseconds a frame, which would stand in the way of every other session.
        return await asyncio.to_thread(
            Episode, self.continuous_token_builder, self._decoder, self._end_of_turn_id, messages, images, tools
        )

    async def generate(self, ids: list[int], images: list[Any], max_new_tokens: int) -> Sampled:
        limit_seconds = self.settings.limits.generation_seconds
        started = time.monotonic()
        try:
            output = await asyncio.wait_for(
                self.server_manager.generate(
                    request_id=uuid4().hex,
                    prompt_ids=ids,
                    sampling_params={**self._sampling_params, **self._seed(ids), "max_tokens": max_new_tokens},
                    image_data=images,
                    mm_processor_kwargs=self.mm_processor_kwargs,
                ),
                timeout=limit_seconds,
            )
        except asyncio.TimeoutError:
            raise SessionFailure("generation_timeout", f"no answer in {limit_seconds:g} s") from None
        except Exception as error:
            logger.exception("generation failed")
            raise SessionFailure("generation", f"{type(error).__name__}: {error}") from error
        finally:
            self._generate_seconds += time.monotonic() - started
        if output.stop_reason == "aborted" or not output.token_ids:
            raise SessionFailure("generation", f"nothing was sampled (stop reason {output.stop_reason})")
        self._weight_versions.append(int(output.extra_fields.get("global_steps") or 0))
        if self._media_ids.intersection(output.token_ids):
            # The ids would stand for images that are not there, for the server and for the trainer.
            raise SessionFailure("media_token", "the model sampled a placeholder of an image or a video")
        return Sampled(list(output.token_ids), list(output.log_probs))

    def _seed(self, ids: list[int]) -> dict[str, int]:
        """A seed from the rollout's name and what the request says: it does not depend on when a request is made."""
        if self.settings.sampling_seed is None:
            return {}
        text = f"{self.settings.sampling_seed}/{self._rollout_name}/{ids}"
        return {"seed": int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")}

    def _output(self, session: Session, episode: Episode, row: dict[str, Any]) -> AgentLoopOutput:
        score = Scorer(self.settings).score(
            session.sample, [turn.turn for turn in session.turns], [turn.executed for turn in session.turns]
        )
        image_token_id = self.processor.image_token_id
        num_runs = count_image_runs(episode.ids, image_token_id)
        if num_runs != len(episode.images):
            raise RuntimeError(
                f"{session.sample.question_id}: {len(episode.images)} images, but the ids hold {num_runs}"
            )
        if not episode.response_ids:
            # verl needs a response; without a sampled token its mask is 0 and it trains nothing.
            episode.append_context([], [self._end_of_turn_id])
        versions = self._weight_versions or [int(row.get("global_steps", 0))]
        return verl_adapter.agent_loop_output(
            prompt_ids=episode.prompt_ids,
            response_ids=episode.response_ids,
            response_mask=episode.response_mask,
            response_log_probs=episode.response_log_probs,
            images=episode.images,
            mm_processor_kwargs=self.mm_processor_kwargs,
            reward=score.reward,
            reward_parts=score.parts,
            num_turns=len(session.turns),
            timings={"generate_sequences": self._generate_seconds, "tool_calls": session.tool_seconds},
            weight_versions=(min(versions), max(versions)),
            extra_fields={
                "paravt_record": rollout_record(session, score, str(row["uid"])),
                "paravt_anchor_flags": score.anchors.flags,
                "paravt_anchor_positions": score.anchors.positions,
            },
        )

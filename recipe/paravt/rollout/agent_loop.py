"""The agent loop ``paravt_agent``: what a session (``session.py``) needs of verl, for one rollout."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import logging
import time
from typing import Any
from uuid import uuid4

from PIL import Image
from verl.experimental.agent_loop.agent_loop import AgentLoopBase

from paravt_tools import FrameBatch, FrameCache
from recipe.paravt import verl_adapter
from recipe.paravt.rollout.assembly import RowAssembler, Sampling
from recipe.paravt.rollout.backend import Sampled, SessionFailure
from recipe.paravt.rollout.dataset import RowError, Sample
from recipe.paravt.rollout.episode import Episode
from recipe.paravt.rollout.scoring import Scorer
from recipe.paravt.rollout.session import RolloutFailed, Session, TokenLimits
from recipe.paravt.rollout.token_text import TokenDecoder
from recipe.paravt.settings import ParaVTSettings

logger = logging.getLogger(__name__)


@functools.lru_cache(maxsize=1)
def _shared_cache(max_bytes: int) -> FrameCache:
    """One frame cache for all agent loops of a process: the rollouts of a group read the same overview."""
    return FrameCache(max_bytes)


@functools.lru_cache(maxsize=1)
def _assembler(settings: ParaVTSettings, tokenizer: Any, processor: Any, mm_processor_kwargs: str) -> RowAssembler:
    return RowAssembler(Scorer(settings), tokenizer, processor, json.loads(mm_processor_kwargs))


def shared_assembler(
    settings: ParaVTSettings, tokenizer: Any, processor: Any, mm_processor_kwargs: dict[str, Any]
) -> RowAssembler:
    """One assembler for a process and its model: it makes its blank conversation once."""
    return _assembler(settings, tokenizer, processor, json.dumps(mm_processor_kwargs, sort_keys=True))


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
        self._assembler = shared_assembler(self.settings, self.tokenizer, self.processor, self.mm_processor_kwargs)
        self._decoder = _shared_decoder(self.tokenizer)
        self._end_of_turn_id = self.tokenizer.convert_tokens_to_ids("<|im_end|>")
        self._media_ids = {self.processor.image_token_id, self.processor.video_token_id}
        self._sampling_params: dict[str, Any] = {}
        self._rollout_name = ""
        self._generate_seconds = 0.0
        self._weight_versions: list[int] = []

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[verl_adapter.AgentLoopOutput]:
        """Runs one rollout.

        Args:
            sampling_params: temperature and the like, the same for the main agent and its sub-agents.
            row: columns of ``ParaVTDataset`` and verl's ``uid``, ``session_id`` and ``global_steps``.

        Returns:
            The main agent's trajectory with its reward.

        Raises:
            RolloutFailed: whatever went wrong; ``worker.py`` makes a counted row of it.
        """
        self._sampling_params = dict(sampling_params)
        self._rollout_name = f"{row['uid']}/{row['session_id']}"
        session = None
        try:
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
            finished = await session.run()
            versions = self._weight_versions or [int(row.get("global_steps", 0))]
            sampling = Sampling(self._generate_seconds, (min(versions), max(versions)))
            return self._assembler.rows(str(row["uid"]), sample, finished, sampling)
        except RowError as error:
            raise RolloutFailed(SessionFailure("row", str(error))) from error
        except Exception as error:
            if not isinstance(error, SessionFailure):
                logger.exception("a fault of ours in rollout %s", self._rollout_name)
            raise RolloutFailed(error, session) from error

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

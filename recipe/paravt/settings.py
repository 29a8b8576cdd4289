"""The settings under the Hydra key ``paravt:``, typed and checked.

Defaults are method values of arXiv 2605.20342 (paper or published configuration) unless a comment says
"chosen here". The YAML files under ``config/`` spell them out again for reading; a test holds the two together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args, get_type_hints

from reward_fns import FormatSettings

THINK_PREFIX = "<think>\n"
"""The published forced prefix of every assistant turn (exploration anchoring, arXiv 2605.20342)."""

DISPATCH_MODES = ("parallel", "sequential")
ANCHOR_CREDITS = ("token", "sequence")


@dataclass(frozen=True)
class SubagentSettings:
    """What a sub-agent sees of its window and how much it may say."""

    min_pixels: int = 784
    max_pixels: int = 50_176
    fps: float = 1.0
    max_frames: int = 16
    max_new_tokens: int = 512
    # Whether the question is shown to the sub-agent is not published; chosen here: yes, a summary written for
    # nobody in particular leaves out what is asked for.
    see_question: bool = True

    def __post_init__(self) -> None:
        _positive(self, "min_pixels", "fps", "max_frames", "max_new_tokens")
        if self.min_pixels > self.max_pixels:
            raise ValueError(f"min_pixels {self.min_pixels} is above max_pixels {self.max_pixels}")


@dataclass(frozen=True)
class LimitSettings:
    """Limits so that every session ends, and a run that only fails does not go on. Chosen here.

    Attributes:
        generation_seconds, call_seconds, read_seconds: of one answer of the server, one call, one read of frames.
        session_seconds: of a whole rollout, from its row to the rows that verl gets.
        phase_seconds: of one phase of a step (generating, training, saving …); above it the run ends.
        max_failed_share: share of a step's rollouts that may fail or be lost; above it the run ends.
    """

    generation_seconds: float = 600.0
    call_seconds: float = 600.0
    read_seconds: float = 120.0
    session_seconds: float = 3600.0
    phase_seconds: float = 7200.0
    max_failed_share: float = 0.5

    def __post_init__(self) -> None:
        _positive(self, "generation_seconds", "call_seconds", "read_seconds", "session_seconds", "phase_seconds")
        if self.session_seconds >= self.phase_seconds:
            raise ValueError(
                f"limits.session_seconds {self.session_seconds:g} is not below limits.phase_seconds "
                f"{self.phase_seconds:g}: the run would end before its slowest rollout does"
            )
        if not 0.0 <= self.max_failed_share <= 1.0:
            raise ValueError(f"max_failed_share is {self.max_failed_share}; it must be in [0, 1]")


@dataclass(frozen=True)
class RewardWeights(FormatSettings):
    """The settings of ``reward_fns.compute_score`` that the recipe exposes; see its docstring."""

    w_fmt: float = 1.0
    w_tool: float = 1.0


@dataclass(frozen=True)
class AdvantageSettings:
    """PARA-GRPO's advantage; see ``advantage.para_grpo_advantage``."""

    anchor_credit: str = "token"
    batch_norm: bool = True

    def __post_init__(self) -> None:
        _one_of(self, "anchor_credit", ANCHOR_CREDITS)


@dataclass(frozen=True)
class ParaVTSettings:
    """Everything of ours that a run can be told.

    Attributes:
        dry_run: compose and check the configuration, print it, and stop.
        output_dir: what a run leaves is written here.
        verbose: show all that verl, Ray and vLLM print, which else goes to ``log.txt`` only.
        video_root: folder that relative video paths of the parquet rows are resolved against; none: the
            working directory.
        val_video_root: the same for validation rows; none: ``video_root``.
        forced_prefix: tokens that every assistant turn starts with; empty for none.
        fixed_frame_budget: K for every training prompt instead of the row's own; none: the row's.
        dispatch: ``parallel`` runs all calls of a turn at the same time; ``sequential`` takes one call a turn.
        max_turns: assistant turns in a rollout.
        max_parallel_calls: calls of one turn that are executed.
        max_new_tokens: sampled tokens of one turn.
        cache_bytes: decoded frames kept for each agent-loop process. Chosen here.
        checkpoints_to_keep: whole checkpoints; one more has to fit on the disk while it is written. Chosen here.
        sampling_seed: makes what is sampled the same in every run and after every resume, for the same weights. None:
            vLLM's own stream, since a stream for each request costs a server under load (and on a GPU the logits are
            not the same twice anyway). Chosen here.
    """

    dry_run: bool = False
    verbose: bool = False
    output_dir: str = "outputs/paravt"
    video_root: str | None = None
    val_video_root: str | None = None
    forced_prefix: str = THINK_PREFIX
    fixed_frame_budget: int | None = None
    dispatch: str = "parallel"
    max_turns: int = 3
    max_parallel_calls: int = 5
    max_new_tokens: int = 2048
    cache_bytes: int = 2**30
    checkpoints_to_keep: int = 2
    sampling_seed: int | None = None
    subagent: SubagentSettings = field(default_factory=SubagentSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    reward: RewardWeights = field(default_factory=RewardWeights)
    advantage: AdvantageSettings = field(default_factory=AdvantageSettings)

    def __post_init__(self) -> None:
        _one_of(self, "dispatch", DISPATCH_MODES)
        _positive(self, "max_turns", "max_parallel_calls", "max_new_tokens", "cache_bytes", "checkpoints_to_keep")
        if self.fixed_frame_budget is not None and self.fixed_frame_budget < 1:
            raise ValueError(f"paravt.fixed_frame_budget is {self.fixed_frame_budget}; at least 1, or null")

    @property
    def calls_per_turn(self) -> int:
        """Calls of one turn that are executed in the chosen dispatch mode."""
        return self.max_parallel_calls if self.dispatch == "parallel" else 1

    def score_settings(self) -> dict[str, Any]:
        """Keyword arguments for ``reward_fns.compute_score``: with token credit the anchor is not in the score."""
        return {
            **dataclasses.asdict(self.reward),
            "forced_prefix": "",  # the loop hands over whole turns, prefix included
            "anchor_in_score": self.advantage.anchor_credit == "sequence",
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ParaVTSettings:
        """Builds the settings from the Hydra node ``paravt``.

        Raises:
            ValueError: a key that does not exist, a value of another type, or one out of range.
        """
        return _build(cls, config, "paravt")


def _build(cls: Any, values: Mapping[str, Any], path: str) -> Any:
    hints = get_type_hints(cls)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ValueError(f"unknown setting {path}.{unknown[0]}; {path} has: {', '.join(sorted(hints))}")
    arguments = {}
    for name, value in values.items():
        expected = hints[name]
        if dataclasses.is_dataclass(expected):
            if not isinstance(value, Mapping):
                raise ValueError(f"{path}.{name} is {value!r}; it must hold settings")
            arguments[name] = _build(expected, value, f"{path}.{name}")
        else:
            arguments[name] = _checked(value, get_args(expected) or (expected,), f"{path}.{name}")
    try:
        return cls(**arguments)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _checked(value: Any, allowed: tuple[type, ...], path: str) -> Any:
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if (isinstance(value, bool) and bool not in allowed) or not isinstance(value, allowed):
        names = " or ".join("null" if kind is type(None) else kind.__name__ for kind in allowed)
        raise ValueError(f"{path} is {value!r}; it must be {names}")
    return value


def _positive(settings: Any, *names: str) -> None:
    for name in names:
        if not getattr(settings, name) > 0:
            raise ValueError(f"{name} is {getattr(settings, name)}; it must be above 0")


def _one_of(settings: Any, name: str, allowed: tuple[str, ...]) -> None:
    if getattr(settings, name) not in allowed:
        raise ValueError(f"{name} is {getattr(settings, name)!r}; it must be one of {', '.join(allowed)}")

"""Whether a question's own reference answer would earn the full reward."""

from __future__ import annotations

from data_prep.errors import Rejection
from data_prep.questions import OPTION_LETTERS
from data_prep.validation import Annotation
from reward_fns import mcq_accuracy, temporal_iou, token_f1


def check_answer(annotation: Annotation) -> None:
    """Scores the reference answer against itself, as training will score a model's.

    Raises:
        Rejection: it does not score 1, names no option or several, or a span of it is not in the video.
    """
    if annotation.question_type == "mcq":
        _check_choice(annotation.answer, annotation.options or ())
        score = mcq_accuracy(annotation.answer, annotation.answer, annotation.options)
    elif annotation.question_type == "tvg":
        score = temporal_iou(annotation.answer, annotation.answer, annotation.facts.duration_seconds)
    else:
        score = token_f1(annotation.answer, annotation.answer)
    if score != 1.0:
        raise Rejection("gold_answer_fails", f"the answer {annotation.answer!r} scores {score:g} against itself")


def _check_choice(answer: str, options: tuple[str, ...]) -> None:
    letters = OPTION_LETTERS[: len(options)]
    right = [letter for letter in letters if mcq_accuracy(letter, answer, options) == 1.0]
    if not right:
        raise Rejection("answer_not_in_options", f"the answer {answer!r} is none of {list(options)}")
    if len(right) > 1:
        raise Rejection("ambiguous_answer", f"the answer {answer!r} may be any of {', '.join(right)}")

"""Whether a question's own reference answer would earn the full reward."""

from __future__ import annotations

from data_prep.errors import Rejection
from data_prep.validation import Annotation
from reward_fns import check_gold


def check_answer(annotation: Annotation) -> None:
    """Scores the reference answer against itself, as training will score a model's.

    Raises:
        Rejection: it would not earn the top accuracy.
    """
    reasons = check_gold(
        {
            "question_type": annotation.question_type,
            "answer": annotation.answer,
            "options": annotation.options,
            "duration_seconds": annotation.facts.duration_seconds,
        }
    )
    if reasons:
        raise Rejection("gold_answer_fails", "; ".join(reasons))

"""Open-ended answers: token F1 and exact match."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from reward_fns.choice import MAX_ANSWER_CHARS

# Han, kana, Hangul and their extensions: scripts that are compared character by character.
_CHARACTER = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_TOKEN = re.compile(
    r"(?:(?<!\w)[-+])?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?"
    rf"|[{_CHARACTER}]"
    rf"|(?:(?![{_CHARACTER}])[^\W\d_])+"
)
_ABBREVIATION = re.compile(r"\b(?:[^\W\d_]\.){2,}")
_ARTICLES = frozenset(("a", "an", "the"))
_POLARITY = frozenset(("yes", "no"))
_FOLD = str.maketrans({"−": "-", "'": None, "’": None})


def tokens(text: str) -> list[str]:
    """What is compared: lower case, without punctuation and articles, numbers with their sign and decimals.

    As in SQuAD's evaluation (Rajpurkar et al., 2016), which joins what punctuation parts and drops decimal points.

    >>> tokens("The temperature is -3.5 degrees, not 1,000!")
    ['temperature', 'is', '-3.5', 'degrees', 'not', '1000']
    """
    text = unicodedata.normalize("NFKC", text[:MAX_ANSWER_CHARS]).lower().translate(_FOLD)
    text = _ABBREVIATION.sub(lambda match: match[0].replace(".", ""), text)
    found = (token.replace(",", "").removeprefix("+") for token in _TOKEN.findall(text))
    return [token for token in found if token not in _ARTICLES]


def token_f1(prediction: str, ground_truth: str) -> float:
    """F1 of the tokens that two texts share, with counts, in [0, 1]; symmetric.

    A yes and a no share no credit: where one side is only ``yes`` or ``no``, or both begin with one, the first words
    must agree. If both are empty once normalised, the stripped strings decide.

    >>> token_f1("red red red ball", "red red red cube")
    0.75
    """
    first, second = tokens(prediction), tokens(ground_truth)
    if not first or not second:
        return float(not first and not second and prediction.strip() == ground_truth.strip())
    if _contradict(first, second) or _contradict(second, first):
        return 0.0
    shared = (Counter(first) & Counter(second)).total()
    return 2 * shared / (len(first) + len(second))


def exact_match(prediction: str, ground_truth: str) -> float:
    """1.0 where two texts have the same tokens in the same order, else 0.0; as careful as ``token_f1``.

    >>> exact_match("The red car!", "a red car")
    1.0
    """
    first, second = tokens(prediction), tokens(ground_truth)
    if not first and not second:
        return float(prediction.strip() == ground_truth.strip())
    return float(first == second)


def _contradict(first: list[str], second: list[str]) -> bool:
    if first[0] not in _POLARITY or first[0] == second[0]:
        return False
    return len(first) == 1 or second[0] in _POLARITY

"""Multiple choice: which option an answer names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

MAX_ANSWER_CHARS = 10_000
"""How much of an answer is read, in characters, here and in the other accuracies (chosen here): it bounds the time."""

_MARKUP = re.compile(r"\\(?:boxed|text|mathrm|mathbf)\s*\{([^{}]{0,200})\}|[*`$]|<\|[a-z_]{1,20}\|>")
_BARE = re.compile(r"[(\[{\"']*([A-Za-z])[)\]}\"']*[.:,;!]*")
# ``A.`` ``(A)`` ``A)`` ``A:`` ``A -`` before a text.
_LABEL = re.compile(r"(?:[(\[]([A-Za-z])[)\]][.:]?|([A-Za-z])[.):](?!\w))\s*")
_VERDICT = re.compile(
    r"(?:\b(?:answer|choice|option|verdict)\b(?:\s+(?:letter|here|choice|option))?\s*"
    r"(?:is\s+therefore|is\s+clearly|is|was|would\s+be|should\s+be|must\s+be|will\s+be|are|=|:)"
    r"|\b(?:choose|pick|select|go\s+with|going\s+with))"
    r"\s*:?\s*(?:the\s+)?(?:(?:correct|right|best|final)\s+)?(?:(?:answer|option|choice|letter)\s+)?"
    r"(not\s+)?(?:the\s+)?(?:option\s+)?[(\[\"']*([A-Za-z])(?![A-Za-z'’])[)\]\"']*",
    re.IGNORECASE,
)
_LETTER = re.compile(r"(?<![\w'’])([A-Z])(?![\w'’])")
_BRACKETED = re.compile(r"[(\[]([A-Za-z])[)\]]")
_NEGATED_BEFORE = re.compile(
    r"(?:\bnot|n['’]t(?:\s+be)?|\bneither|\bnor|\brather\s+than|\binstead\s+of|\bnever|\bexcept|\brule\s+out"
    r"|\bruled\s+out|\beliminate|\bexclude)\s+(?:the\s+)?(?:option\s+|answer\s+|choice\s+)?[(\[\"']*$",
    re.IGNORECASE,
)
_NEGATED_AFTER = re.compile(
    r"[)\]\"']*\s*(?:is|was|are|seems)?\s*(?:n['’]t|not\b|wrong\b|incorrect\b|false\b|ruled\s+out\b|impossible\b)",
    re.IGNORECASE,
)
_NEGATED_PHRASE = re.compile(r"\b(?:not|n t|never|neither|nor)(?: (?:a|an|the))? $")
# What may follow a letter that is a verdict, but not an article or a pronoun before a noun or a verb.
_AFTER_VERDICT = frozenset(
    ("because", "since", "as", "is", "are", "was", "and", "or", "but", "which", "that", "due", "given", "for")
    + ("not", "in", "based", "with", "from", "at", "on", "then", "so", "if", "while", "whereas", "when")
)
_NEXT_WORD = re.compile(r"[)\]\"']*\s+([A-Za-z]+)")


def mcq_accuracy(prediction: str, ground_truth: str, options: Sequence[str] | None = None) -> float:
    """1.0 where the answer names the right option, else 0.0.

    Read in this order: a bare letter (``B``, ``(b)``, ``\\boxed{B}``); the last verdict (``the answer is B``, not
    ``the answer is not B``); a label before a text (``B. a red car``); the only letter that stands alone and is
    neither negated nor an article or pronoun; the text of one option. An answer that names several options
    without a verdict names none.

    Args:
        prediction: the model's answer.
        ground_truth: a letter, a letter with its text, or the text of an option.
        options: the texts, with or without their letters; with them, only letters that exist count.

    >>> mcq_accuracy("A man runs; the answer is B", "B")
    1.0
    >>> mcq_accuracy("a red car", "B", ["a blue bus", "a red car"])
    1.0
    """
    texts = _option_texts(tuple(options)) if options is not None and len(options) else ()
    truth = _truth_letter(ground_truth, texts)
    if truth is None:
        plain = _plain(ground_truth)
        return float(bool(plain) and plain in (_plain(prediction), _plain(_LABEL.sub("", prediction.strip(), 1))))
    return float(choice_letter(prediction, texts) == truth)


def choice_letter(prediction: str, options: Sequence[str] = ()) -> str | None:
    """The letter of the option that an answer names, upper case; none where it names none or several.

    >>> choice_letter("It is not A, it is B")
    'B'
    """
    text = _MARKUP.sub(lambda match: match[1] or "", prediction[:MAX_ANSWER_CHARS])
    text = " ".join(text.split())  # so that no pattern meets a long run of white space
    if not text:
        return None
    last = ord("A") + len(options) - 1 if options else ord("Z")
    if bare := _BARE.fullmatch(text):
        letter = bare[1].upper()
        return letter if ord(letter) <= last else None
    named = _last_verdict(text) or _label(text) or _only_letter(text)
    if named and ord(named) <= last:
        return named
    return _only_option(text, options)


def _last_verdict(text: str) -> str | None:
    verdict = None
    for match in _VERDICT.finditer(text):
        letter = match[2]
        if match[1] or _is_word(text, match.end(2), letter) or _NEGATED_AFTER.match(text, match.end(2)):
            continue
        if letter.islower() and not _stands_alone(text, match.start(2), match.end(2)):
            continue
        verdict = letter.upper()
    return verdict


def _label(text: str) -> str | None:
    """The letter before the option's text, where the answer is one line of that form."""
    match = _LABEL.match(text)
    if not match:
        return None
    letter = (match[1] or match[2]).upper()
    others = {m[1] or m[2] for m in _LABEL.finditer(text, match.end())}
    others |= {m[1] for m in _LETTER.finditer(text, match.end()) if not _is_word(text, m.end(1), m[1])}
    return letter if {other.upper() for other in others} <= {letter} else None


def _only_letter(text: str) -> str | None:
    letters = {
        match[1].upper()
        for pattern in (_LETTER, _BRACKETED)
        for match in pattern.finditer(text)
        if not _is_word(text, match.end(1), match[1])
        and not _NEGATED_BEFORE.search(text, max(0, match.start() - 40), match.start(1))
        and not _NEGATED_AFTER.match(text, match.end(1))
    }
    return letters.pop() if len(letters) == 1 else None


def _is_word(text: str, end: int, letter: str) -> bool:
    """Whether the letter is the article or the pronoun: a word follows that no verdict would have after it."""
    if letter not in "AIai" or text[end : end + 1] in (")", "]"):
        return False
    match = _NEXT_WORD.match(text, end)
    return match is not None and match[1].lower() not in _AFTER_VERDICT


def _stands_alone(text: str, start: int, end: int) -> bool:
    """A lower-case letter is a verdict in brackets or quotes, or at the end of a sentence."""
    return text[end : end + 1] in ("", ")", "]", '"', "'", ".", ",", ";", "!") or text[start - 1] in "([\"'"


def _only_option(text: str, options: Sequence[str]) -> str | None:
    """The option whose text the answer is, or the only one whose text it holds as a phrase."""
    answer = _plain(text)
    plain = [_plain(option) for option in options]
    if not answer:
        return None
    if (count := plain.count(answer)) == 1:
        return chr(ord("A") + plain.index(answer))
    if count > 1:
        return None
    # The longest first, each taken out: "a red car" does not name the option "car" as well.
    rest, held = f" {answer} ", []
    for index in sorted(range(len(plain)), key=lambda i: -len(plain[i])):
        phrase = f" {plain[index]} "
        if plain[index] and phrase in rest:
            negated = _NEGATED_PHRASE.search(rest, 0, rest.index(phrase) + 1)
            rest = rest.replace(phrase, " | ")
            if not negated:
                held.append(index)
    return chr(ord("A") + held[0]) if len(held) == 1 else None


@lru_cache(maxsize=4096)
def _option_texts(options: tuple[str, ...]) -> tuple[str, ...]:
    """The texts without their letters, where every option starts with its own."""
    texts = [str(option).strip() for option in options]
    labels = [_LABEL.match(text) for text in texts]
    if all(match and (match[1] or match[2]).upper() == chr(ord("A") + index) for index, match in enumerate(labels)):
        return tuple(text[match.end() :] for text, match in zip(texts, labels, strict=True) if match)
    return tuple(texts)


def _truth_letter(ground_truth: str, options: Sequence[str]) -> str | None:
    text = ground_truth.strip()
    if options:
        plain = [_plain(option) for option in options]
        if len(text) > 1 and plain.count(_plain(text)) == 1:
            return chr(ord("A") + plain.index(_plain(text)))
    if bare := _BARE.fullmatch(text):
        return bare[1].upper()
    label = _LABEL.match(text)
    return (label[1] or label[2]).upper() if label else None


def _plain(text: str) -> str:
    """Lower case, words only, without a leading article."""
    words = re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text[:MAX_ANSWER_CHARS]).lower())
    if len(words) > 1 and words[0] in ("a", "an", "the"):
        words = words[1:]
    return " ".join(words)

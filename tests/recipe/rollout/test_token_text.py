"""Character ranges of sampled tokens, without encoding anything again."""

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from recipe.paravt.rollout.token_text import TokenDecoder, TokenText


@pytest.fixture(scope="module")
def tokenizer():
    """Bytes as tokens, plus some that merge over a tag's border as Qwen's do, plus an added tag."""
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("<", "/"), (".", "</")]
    vocabulary = {symbol: index for index, symbol in enumerate([*symbols, "</", ".</"])}
    core = Tokenizer(models.BPE(vocabulary, merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_tokens([AddedToken("</think>", normalized=False)])
    core.add_special_tokens([AddedToken("<|im_end|>", normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=core)


def decode(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    return ids, TokenDecoder(tokenizer).decode(ids)


@pytest.mark.parametrize("text", ["plain", "a</think>b<|im_end|>", "é漢字🙂 mixed", "", "\n\t.</answer>"])
def test_text_is_the_tokenizers_own(tokenizer, text):
    ids, decoded = decode(tokenizer, text)
    assert decoded.text == text == tokenizer.decode(ids)
    assert len(decoded.ends) == len(ids)


def test_a_tag_of_one_token(tokenizer):
    ids, decoded = decode(tokenizer, "ab</think>c")
    assert decoded.tokens_within(2, 10) == [2]
    assert ids[2] == tokenizer.convert_tokens_to_ids("</think>")


def test_a_tag_split_over_tokens(tokenizer):
    _, decoded = decode(tokenizer, "x</answer>")
    assert decoded.text[1:10] == "</answer>"
    # "</" is one token, then seven bytes.
    assert decoded.tokens_within(1, 10) == list(range(1, 9))


def test_a_token_that_also_holds_content_is_left_out(tokenizer):
    _, decoded = decode(tokenizer, "x.</answer>")
    start = decoded.text.index("</")
    # ".</" begins with content, so it does not lie wholly inside the tag.
    assert decoded.tokens_within(start, len(decoded.text)) == list(range(2, 9))


def test_without_a_token_inside_the_one_that_ends_the_range(tokenizer):
    _, decoded = decode(tokenizer, "x.</answer>")
    start = decoded.text.index("</")
    assert decoded.tokens_within(start, start + 2) == [1]


def test_an_empty_range_at_the_end_is_the_last_token(tokenizer):
    _, decoded = decode(tokenizer, "abc")
    assert decoded.tokens_within(3, 3) == [2]
    assert TokenText("", ()).tokens_within(0, 0) == []


def test_a_character_over_several_tokens_before_a_tag(tokenizer):
    ids, decoded = decode(tokenizer, "é</think>")
    assert len(ids) == 3
    assert decoded.ends == (0, 1, 9)
    assert decoded.tokens_within(1, 9) == [2]


def test_bytes_that_are_no_utf8(tokenizer):
    ids = tokenizer.encode("é", add_special_tokens=False)[:1]  # half a character, then a tag
    ids += tokenizer.encode("</think>ok", add_special_tokens=False)
    decoded = TokenDecoder(tokenizer).decode(ids)
    assert decoded.text == "\ufffd</think>ok"
    assert decoded.text == tokenizer.decode(ids)
    start = decoded.text.index("</think>")
    tag = decoded.tokens_within(start, start + len("</think>"))
    # The replacement character becomes known only with the tag's token, which therefore covers both.
    assert [ids[position] for position in tag] == [tokenizer.convert_tokens_to_ids("</think>")]

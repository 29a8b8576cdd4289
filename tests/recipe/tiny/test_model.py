"""The tiny checkpoint: same bytes for the same seed, Qwen3-VL's shape, and the same numbers in vLLM."""

import hashlib
import importlib.util
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from jinja2 import TemplateError
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor, AutoTokenizer, GenerationConfig

from paravt_tools import CROP_VIDEO_SCHEMA
from recipe.paravt.rollout import prompts
from recipe.paravt.tiny.model import TinySizes, build_model
from recipe.paravt.tiny.tokenizer import PLAIN_TOKENS, SPECIAL_TOKENS, build_tokenizer, training_texts

REPOSITORY = Path(__file__).parents[3]
FRAME_LIMITS = {"shortest_edge": 784, "longest_edge": 50_176}


def write_in_new_process(output, *options, hash_seed="0"):
    command = [sys.executable, "-m", "recipe.paravt.tiny", "--output", str(output), *options]
    subprocess.run(command, cwd=REPOSITORY, env=os.environ | {"PYTHONHASHSEED": hash_seed}, check=True, timeout=120)


def digests(folder):
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


@pytest.fixture(scope="module")
def checkpoint(tiny_model):
    return tiny_model


@pytest.fixture(scope="module")
def tokenizer(checkpoint):
    return AutoTokenizer.from_pretrained(checkpoint)


@pytest.fixture(scope="module")
def processor(checkpoint):
    return AutoProcessor.from_pretrained(checkpoint)


@pytest.fixture(scope="module")
def model(checkpoint):
    return AutoModelForImageTextToText.from_pretrained(checkpoint).eval()


@pytest.fixture(scope="module")
def frames():
    """A dark frame with a red square in its upper left, and one with a blue square in its lower right."""
    first, second = np.full((2, 64, 64, 3), 30, dtype=np.uint8)
    first[4:28, 4:28] = (225, 25, 25)
    second[36:60, 36:60] = (40, 70, 235)
    return [Image.fromarray(first), Image.fromarray(second)]


# Bytes


def test_equal_seeds_give_equal_bytes_in_every_file(checkpoint, tmp_path):
    write_in_new_process(tmp_path / "again", "--seed", "0", hash_seed="77")
    assert digests(tmp_path / "again") == digests(checkpoint)


def test_another_seed_changes_the_weights_alone(checkpoint, tmp_path):
    write_in_new_process(tmp_path / "other", "--seed", "1")
    before, after = digests(checkpoint), digests(tmp_path / "other")
    assert {name for name in before if before[name] != after.get(name)} == {"model.safetensors"}
    assert before.keys() == after.keys()


def test_files_are_those_of_a_published_checkpoint(checkpoint):
    assert set(digests(checkpoint)) == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "preprocessor_config.json",
        "video_preprocessor_config.json",
    }


def test_building_leaves_the_global_random_state_alone(tokenizer):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    build_model(TinySizes(num_layers=1), tokenizer, seed=0)
    assert torch.equal(torch.rand(4), expected)


# Model


def test_model_is_a_small_float32_qwen3_vl(model, tokenizer):
    assert type(model).__name__ == "Qwen3VLForConditionalGeneration"
    assert 1e6 <= sum(parameter.numel() for parameter in model.parameters()) <= 8e6
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    text = model.config.text_config
    assert text.head_dim >= 32, "vLLM's CPU attention takes no smaller head"
    assert sum(text.rope_parameters["mrope_section"]) == text.head_dim // 2
    assert text.max_position_embeddings == 32_768
    assert text.vocab_size == len(tokenizer), "every id that can be sampled can be decoded"
    assert model.lm_head.weight is model.get_input_embeddings().weight


def test_token_ids_of_the_configuration_are_the_tokenizers(model, tokenizer):
    config = model.config
    names = tokenizer.convert_ids_to_tokens(
        [
            config.image_token_id,
            config.video_token_id,
            config.vision_start_token_id,
            config.vision_end_token_id,
        ]
    )
    assert names == ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]


def test_generation_stops_at_both_ends_and_sets_no_sampling(checkpoint, tokenizer):
    generation = GenerationConfig.from_pretrained(checkpoint)
    assert tokenizer.convert_ids_to_tokens(generation.eos_token_id) == ["<|im_end|>", "<|endoftext|>"]
    assert generation.pad_token_id == tokenizer.pad_token_id
    saved = json.loads((checkpoint / "generation_config.json").read_text())
    assert set(saved) == {"eos_token_id", "pad_token_id", "transformers_version"}


def test_what_a_frame_shows_weighs_as_much_as_a_word(model, processor, frames):
    """Each stream of visual features differs between tokens about as much as text embeddings do."""
    inputs = processor.image_processor(images=frames, size=FRAME_LIMITS, return_tensors="pt")
    with torch.no_grad():
        features = model.model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
    words = model.get_input_embeddings().weight.std().item()
    for stream in (torch.cat(tuple(features.pooler_output)), *features.deepstack_features):
        assert stream.shape == (8, model.config.text_config.hidden_size)
        assert 0.3 < stream.std(0).mean().item() / words < 3.0


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ({"head_size": 16}, "head_size is 16"),
        ({"head_size": 33}, "head_size is 33"),
        ({"num_heads": 3, "num_key_value_heads": 2}, "num_heads is 3"),
        ({"vision_hidden_size": 90, "vision_num_heads": 3}, "vision_hidden_size is 90"),
    ],
)
def test_sizes_that_cannot_be_built_are_named(sizes, named):
    with pytest.raises(ValueError, match=named):
        TinySizes(**sizes)


# Processor


def test_image_limits_are_the_published_ones(processor):
    size = processor.image_processor.size
    assert (size["shortest_edge"], size["longest_edge"]) == (65_536, 16_777_216)
    assert (processor.image_processor.patch_size, processor.image_processor.merge_size) == (16, 2)
    assert processor.image_processor.temporal_patch_size == processor.video_processor.temporal_patch_size == 2


@pytest.mark.parametrize(("limits", "num_tokens"), [({}, 8 * 8), ({"size": FRAME_LIMITS}, 2 * 2)])
def test_a_small_frame_keeps_its_size_only_under_our_limits(processor, frames, limits, num_tokens):
    text = "<|vision_start|><|image_pad|><|vision_end|>"
    ids = processor(text=[text], images=frames[:1], **limits)["input_ids"][0]
    assert ids.count(processor.image_token_id) == num_tokens
    assert len(ids) == num_tokens + 2


# Tokenizer


def test_added_tokens_follow_the_bytes_pairs_in_the_published_order(tokenizer):
    added = tokenizer.added_tokens_decoder
    assert [added[index].content for index in sorted(added)] == [*SPECIAL_TOKENS, *PLAIN_TOKENS]
    assert sorted(added) == list(range(len(tokenizer) - len(added), len(tokenizer)))


@pytest.mark.parametrize("name", ["think", "tool_call", "tool_response"])
def test_tool_tags_are_one_token_each_and_kept_by_the_decoder(tokenizer, name):
    ids = tokenizer(f"<{name}>a</{name}>")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == [f"<{name}>", "a", f"</{name}>"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == f"<{name}>a</{name}>"


def test_answer_tags_are_several_tokens(tokenizer):
    assert len(tokenizer("<answer>")["input_ids"]) > 1
    assert len(tokenizer("</answer>")["input_ids"]) > 1


def test_special_tokens_are_dropped_by_the_decoder(tokenizer):
    for token in SPECIAL_TOKENS:
        ids = tokenizer(f"a{token}b")["input_ids"]
        assert len(ids) == 3
        assert tokenizer.decode(ids, skip_special_tokens=True) == "ab"


def test_digits_are_one_token_each(tokenizer):
    assert tokenizer.convert_ids_to_tokens(tokenizer("120.45")["input_ids"]) == list("120.45")


def test_words_of_the_prompts_are_single_tokens(tokenizer):
    for word in (" video", " frames", " seconds", "crop", "answer"):
        assert len(tokenizer(word)["input_ids"]) == 1, word


@pytest.mark.parametrize("text", ["", "naïve 視頻 🎬", "\x00\t\r\n  x", "\u200d\ufffd\U0010ffff", "<|not_a_token|>"])
def test_any_text_comes_back(tokenizer, text):
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_every_byte_has_an_id(tokenizer):
    vocabulary = tokenizer.get_vocab()
    symbols = {symbol for character in map(chr, range(0x800)) for symbol in tokenizer.tokenize(character)}
    assert symbols <= vocabulary.keys()
    assert sum(len(token) == 1 for token in vocabulary) == 256


def test_vocabulary_without_room_for_the_bytes_is_refused():
    with pytest.raises(ValueError, match=r"vocab_size is 281; it must be at least 282"):
        build_tokenizer(training_texts(), 281)


# Chat template


def render(tokenizer, messages, **options):
    return tokenizer.apply_chat_template(messages, tokenize=False, **options)


def test_turns_have_qwens_structure(tokenizer):
    messages = [
        {"role": "system", "content": "S"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<0.5 seconds>"},
                {"type": "image"},
                {"type": "text", "text": "Q"},
            ],
        },
        {"role": "assistant", "content": "<think>\nx</think>"},
        {"role": "tool", "content": "first"},
        {"role": "tool", "content": [{"type": "text", "text": "second"}]},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": [{"type": "video", "video": "f.mp4"}, "?"]},
    ]
    assert render(tokenizer, messages, add_generation_prompt=True) == (
        "<|im_start|>system\nS<|im_end|>\n"
        "<|im_start|>user\n<0.5 seconds><|vision_start|><|image_pad|><|vision_end|>Q<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nx</think><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nfirst\n</tool_response>\n<tool_response>\nsecond\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nA<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|><|video_pad|><|vision_end|>?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("system", [[], [{"role": "system", "content": "S"}]])
def test_tools_stand_in_the_system_turn_as_json_lines(tokenizer, system):
    text = render(tokenizer, [*system, {"role": "user", "content": "Q"}], tools=[CROP_VIDEO_SCHEMA] * 2)
    assert text.count("<|im_start|>system\n") == 1
    assert text.startswith("<|im_start|>system\nS\n\n" if system else "<|im_start|>system\nThese")
    lines = text.split("<tools>\n")[1].split("\n</tools>")[0].split("\n")
    assert [json.loads(line) for line in lines] == [CROP_VIDEO_SCHEMA] * 2
    assert text.endswith("</tool_call><|im_end|>\n<|im_start|>user\nQ<|im_end|>\n")


@pytest.mark.parametrize("wrap", [lambda call: call, lambda call: {"type": "function", "function": call}])
@pytest.mark.parametrize("encode", [lambda arguments: arguments, json.dumps])
@pytest.mark.parametrize("said", ["", "x"])
def test_calls_given_as_data_are_written_as_json_blocks(tokenizer, wrap, encode, said):
    calls = [wrap({"name": "crop_video", "arguments": encode({"start_time": start})}) for start in (1, 2.5)]
    text = render(tokenizer, [{"role": "assistant", "content": said, "tool_calls": calls}])
    blocks = [
        f'<tool_call>\n{{"name": "crop_video", "arguments": {{"start_time": {start}}}}}\n</tool_call>'
        for start in (1, 2.5)
    ]
    assert text == "<|im_start|>assistant\n" + "\n".join([said, *blocks] if said else blocks) + "<|im_end|>\n"


def test_a_conversation_grows_only_at_its_end(tokenizer):
    messages = [
        *prompts.main_messages("<video>\nWhat?", [0.0, 1.5], "parallel"),
        {"role": "assistant", "content": "<think>\nlook</think>"},
        prompts.tool_message("nothing"),
        {"role": "assistant", "content": "<answer>B</answer>"},
    ]
    texts = [render(tokenizer, messages[:count], tools=[CROP_VIDEO_SCHEMA]) for count in range(1, len(messages) + 1)]
    assert all(longer.startswith(shorter) for shorter, longer in itertools.pairwise(texts))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "judge", "content": "x"}, "got judge"),
        ({"role": "user", "content": [{"type": "audio"}]}, "got audio"),
        ({"role": "user", "content": 3}, "a string or a list"),
    ],
)
def test_what_the_template_cannot_show_is_an_error(tokenizer, message, reason):
    with pytest.raises(TemplateError, match=reason):
        render(tokenizer, [message])


# vLLM

GENERATE = """
import json, sys
import numpy as np
from PIL import Image
from vllm import LLM, SamplingParams

if __name__ == "__main__":
    request = json.load(sys.stdin)
    images = [Image.fromarray(np.array(pixels, dtype=np.uint8)) for pixels in request["images"]]
    llm = LLM(
        request["model"], dtype="float32", enforce_eager=True, max_model_len=512, max_num_seqs=2,
        limit_mm_per_prompt={"image": 2}, mm_processor_kwargs={"size": request["size"]},
    )
    prompt = {"prompt_token_ids": request["prompt_token_ids"], "multi_modal_data": {"image": images}}
    [output] = llm.generate(prompt, SamplingParams(temperature=1.0, seed=5, max_tokens=12, logprobs=0))
    [made] = output.outputs
    logprobs = [at[token].logprob for at, token in zip(made.logprobs, made.token_ids)]
    result = {"prompt": output.prompt_token_ids, "tokens": made.token_ids, "logprobs": logprobs}
    print("RESULT " + json.dumps({key: list(value) for key, value in result.items()}))
"""


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
def test_vllm_gives_the_log_probabilities_of_transformers(checkpoint, model, processor, frames, tmp_path):
    messages = prompts.subagent_messages("What appears?", [0.0, 1.5])
    text = processor.apply_chat_template(messages, add_generation_prompt=True)
    inputs = processor(text=[text], images=frames, size=FRAME_LIMITS, return_tensors="pt")
    script = tmp_path / "generate.py"
    script.write_text(GENERATE)
    request = {
        "model": str(checkpoint),
        "prompt_token_ids": processor.tokenizer(text)["input_ids"],
        "images": [np.asarray(frame).tolist() for frame in frames],
        "size": FRAME_LIMITS,
    }
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
    run = subprocess.run(
        [sys.executable, str(script)],
        input=json.dumps(request),
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=300,
    )
    [line] = [line for line in run.stdout.splitlines() if line.startswith("RESULT ")] or [run.stderr[-3000:]]
    result = json.loads(line.removeprefix("RESULT "))

    assert result["prompt"] == inputs["input_ids"][0].tolist()
    tokens = torch.tensor([result["tokens"]])
    length = inputs["input_ids"].shape[1]
    inputs["input_ids"] = torch.cat([inputs["input_ids"], tokens], dim=1)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["mm_token_type_ids"] = torch.nn.functional.pad(inputs["mm_token_type_ids"], (0, tokens.shape[1]))
    with torch.no_grad():
        logprobs = model(**inputs).logits[0, length - 1 : -1].log_softmax(-1)
    expected = logprobs.gather(1, tokens[0, :, None])[:, 0]
    assert torch.allclose(torch.tensor(result["logprobs"]), expected, atol=1e-3)

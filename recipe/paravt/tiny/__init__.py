"""The tiny Qwen3-VL: model, tokenizer and the command that writes both; imports ``rollout``."""

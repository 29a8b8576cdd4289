"""The tiny Qwen3-VL: model, tokenizer, command; imports ``rollout``, ``settings`` and ``verl_adapter``."""

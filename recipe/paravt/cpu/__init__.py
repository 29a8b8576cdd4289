"""What exists only without a GPU: a verl platform, an engine and a vLLM server; imports ``training``."""

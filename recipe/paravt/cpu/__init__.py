"""The CPU backend: a verl platform and a vLLM replica, active only in runs of ours without a GPU."""

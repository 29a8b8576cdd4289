"""How rollouts are learned from, and how weights get to vLLM; imports ``rollout`` and ``lifecycle``."""

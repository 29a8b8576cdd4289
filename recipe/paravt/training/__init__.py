"""How rollouts are learned from; imports ``rollout``, ``lifecycle``, ``settings`` and ``verl_adapter``."""

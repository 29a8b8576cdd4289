"""What exists only without a GPU; imports ``training``, ``settings`` and ``verl_adapter``."""

"""How a run starts, watches itself and ends; imports ``settings`` and ``verl_adapter``, no other room."""

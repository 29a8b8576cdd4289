"""How a rollout is made, from a row to scored tokens; imports ``settings`` and ``verl_adapter``, no other room."""

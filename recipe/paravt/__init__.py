"""The ParaVT recipe for veRL: what only makes sense inside the trainer."""

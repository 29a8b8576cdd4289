"""From the first process of a run to the last: who is alive, who ends it, what is cleaned up after it."""

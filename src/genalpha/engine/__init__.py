"""One step of a run, its error, the choice of the next one, and what lies between steps."""

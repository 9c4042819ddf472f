"""One step of a run: its solution, its error, the size of the next step, and interpolation between steps."""

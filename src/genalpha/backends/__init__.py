"""The loops around a step: by native code, by XLA, and for batches."""

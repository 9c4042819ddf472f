"""Runs with events under JAX transforms: values and derivatives of the motion from event to event."""

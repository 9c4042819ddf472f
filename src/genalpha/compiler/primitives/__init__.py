"""The scalar expressions of JAX's operations."""

"""What the operations of JAX become in scalar expressions."""

"""Native code inside JAX transforms: operations with rules of their own for derivatives and batches."""

"""From JAX functions to machine code: jaxpr, scalar program, LLVM or CUDA."""

"""How functions become machine code: jaxpr, scalar program, LLVM or CUDA."""

"""Large assemblies on the CPU: kernels of single parts, run over arrays of parts, and sparse matrices."""

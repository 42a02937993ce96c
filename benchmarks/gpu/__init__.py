"""The fused kernels of `regard` on a GPU, beside what else runs there: `python -m benchmarks.gpu`."""

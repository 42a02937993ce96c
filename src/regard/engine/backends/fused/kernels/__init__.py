"""The Triton kernels, and the fragments they are made of.

Arguments travel as named tuples. A field that is None is known when a kernel is compiled, so what a call does not have
costs nothing: `if mask.lengths is not None` is a choice between kernels, not a branch.
"""

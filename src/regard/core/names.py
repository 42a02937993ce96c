"""Terms by the names that settings and files call them: a class of the room is the name in upper and lower case."""

SCORES = ("dot", "additive", "bilinear", "cosine", "concat", "gaussian")
WEIGHS = ("softmax", "relu", "sigmoid", "entmax", "sparsemax", "hard")
# functions of torch.nn.functional
ACTIVATIONS = ("relu", "gelu", "silu")

"""How scores become weights."""

from regard.weigh.entmax import Entmax, Sparsemax
from regard.weigh.hard import Hard
from regard.weigh.relu import Relu
from regard.weigh.sigmoid import Sigmoid
from regard.weigh.softmax import Softmax
from regard.weigh.sum import Sum

__all__ = ["Entmax", "Hard", "Relu", "Sigmoid", "Softmax", "Sparsemax", "Sum"]

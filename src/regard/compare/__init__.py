"""Convolution, recurrence and self-attention side by side: what each costs, how far it sees, what it learns."""

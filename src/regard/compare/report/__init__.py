"""How numbers are written and drawn, whatever part they are of."""

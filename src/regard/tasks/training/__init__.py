"""What every run has, whatever it learns: the loop, its folder, its settings, its devices."""

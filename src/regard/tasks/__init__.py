"""Tasks: how each is trained, used, scored and looked at, found by the registry."""

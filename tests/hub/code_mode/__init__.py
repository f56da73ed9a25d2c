"""`hub_run`: programs of models that call tools."""

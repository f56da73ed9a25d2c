"""JSON Schema: compile, bound, loosen, extend and explain."""

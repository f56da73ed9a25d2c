"""JSON Schema: schemas are compiled, bounded, made lenient, edited and explained."""

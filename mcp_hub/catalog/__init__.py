"""The merged, immutable lists of tools, resources, templates and prompts, and their names and URIs."""

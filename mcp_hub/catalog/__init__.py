"""The merged, immutable lists of tools, resources, templates and prompts, and the names in them."""

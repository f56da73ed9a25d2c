"""The hub: generations of configuration, routing of calls, the catalogs that callers see, groups and status."""

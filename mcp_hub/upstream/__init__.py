"""The servers behind the hub: supervision, sessions, lists, subscriptions and the catalog cache."""

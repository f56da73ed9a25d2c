"""Signing in to upstreams: gets, stores, renews and revokes tokens, with the SDK's OAuth client."""

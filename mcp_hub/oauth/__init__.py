"""Signing in to upstreams: tokens got, kept, renewed and forgotten. The SDK's OAuth client does the talking."""

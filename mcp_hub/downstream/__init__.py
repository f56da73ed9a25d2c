"""Clients of the hub: listeners, sessions of both eras, stdio, SSE, authentication and quotas."""

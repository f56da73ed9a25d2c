"""A raw client: no SDK, no event loop but epoll, requests from templates of bytes. It is never the bottleneck."""

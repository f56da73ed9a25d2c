"""Proxies the hub is compared with, as programs: `python -m bench.proxies.NAME CONFIG TRANSPORT PORT`."""

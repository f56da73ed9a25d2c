"""Servers behind the hub: one supervised connection each, in the era and over the transport each has."""

"""How well the hub finds tools: sets of queries with known answers, and what it is compared with."""

"""The library: the hub in a Python program, and the classes of other tool systems on top of it.

Nothing here has connections, rules or retries of its own: every call goes through the policies of the hub.
"""

"""Chaos: what a run has shown to the outside, what must hold of it, and machinery that crashes runs to find out.

``perdure.testing`` is the public face of this room.
"""

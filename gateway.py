"""The door for people: HTTP and WebSockets to a system's sessions. Needs ``perdure[web]`` when it is used, see docs/gateway.md.

    create_app  the ASGI application, to be mounted in a host's own
    Limits      how much clients may ask for
    serve       a daemon of its own, as ``perdure serve`` runs it

A face of ``actors.gateway``.
"""

from .actors.gateway.app import create_app
from .actors.gateway.guard import Limits
from .actors.gateway.serving import serve

__all__ = ["Limits", "create_app", "serve"]

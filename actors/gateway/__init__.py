"""The door for people: HTTP and WebSockets, on nothing but the public interface. See docs/gateway.md.

guard         who may come in: hosts, origins, the token, rates
refusals      what is refused, as typed answers
commands      what can be done, each once for its request id
reads         what can be read
following     watches as bounded frames, from a backlog
presence      who is here
sockets       one WebSocket
routes        HTTP, server-sent events, the page's files
description   all of HTTP in OpenAPI's terms
app, house    one ASGI application, and what its connections share
serving       a daemon of its own: ``perdure serve``
"""

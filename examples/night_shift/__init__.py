"""The parts of the night shift, in reading order.

daemon.py    the durable part: a system, a session, one question; nothing in it is about recovery
agents.py    what the agents are told, and their tools: reading is safe to repeat, filing a ticket is not
script.py    the scripted model: what a model would answer, as a function of the request
rules.py     what the scripted model looks for, and which hits it finds worth a ticket
tree.py      the source tree that is audited
ledger.py    the tickets: a file outside of the database
launcher.py  starts the daemon, kills it, starts it again
judge.py     what every crash has cost, and whether all promises were kept
screen.py    what is shown meanwhile
"""

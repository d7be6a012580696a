"""Decisions about work and who answers for it, as pure functions over records: no I/O, no clock, no loop.

    ownership, forest     who lives below whom; the live tasks of a session
    joins, settlement     when waits end; what follows from a change, in one pass
    restart               whether, whom, how often and how long apart to restart

May import ``storage.records`` alone. Tests: tests/supervisors/.
"""

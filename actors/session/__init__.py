"""A session: the unit of isolation, atomicity and placement.

    errors, environment       what can go wrong; what upper rooms bring in
    line, gate                one commit block at a time; nothing leaves before it is durable
    pending, publication      what is admitted and not durable; what a durable commit says
    documents, core, tx       mutable JSON; the state of an incarnation; what a commit block stages
    forks                     what a fork shares and what it copies
    commit, read, watch       the way of a commit; reads and watches from outside
    mailbag, mail, courier    durable messages: what is live, what commits do to them, delivery to other sessions
    storage_actor, timer      group commit; stored deadlines
    actors, directory         the session's actors; how handles find them

Knows no task code, no model and no agent. Tests: tests/actors/session/.
"""

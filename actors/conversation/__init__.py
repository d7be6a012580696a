"""Conversations: what is said, what is queued, and what a model gets to see of it.

    settings, builtin, choice     policies; built-in documents and entries; what is chosen for a conversation
    rounds, context, transcripts  calls and results; from entries to messages; active transcripts in memory
    inbox, writes                 admission, boundaries and settlement of submissions
    cutting, compaction           where a transcript may be cut; asking for a compaction, and what became of it
    ledger, budget                what was spent, and the caps on it
    view, events, derivation      the replicated view, and what its changes mean
    submissions, handles, sessions    what applications hold
    deletion                      the end of a conversation: abort, wait, delete, over any number of crashes

Knows how runs are started (``inbox.Runner``), not what they are made of. Tests: tests/actors/conversation/.
"""

"""Floor 2: what a session stores, the contract of a store, and the stores.

    records, errors, contract   the words: records and commits, what can go wrong, what a backend promises
    checks, ancestry, replay,   pure rules that all backends share: batches, cursors, fork segments, document values,
    codec                       and the JSON form of records
    memory, memory_session      the reference semantics, in this process's memory
    sqlite                      one file for all sessions; its parts, from the caller down:
      sqlite_thread               the connection's thread, which never keeps a process alive
      sqlite_writer               owning and writing one file; sqlite_log: its write-ahead log
      sqlite_group                a group of batches as rows: tables; sqlite_documents: documents; sqlite_session: counters
      sqlite_deletion             sessions that go, at once and then bit by bit
      sqlite_bulk                 statements for many rows at once
      sqlite_reading              the contract's questions; sqlite_reads: their queries; sqlite_document_reads: of documents
      sqlite_reader               anybody else's view of the file; sqlite_sizes: how much a session takes
      sqlite_schema               tables and settings; sqlite_migrations: how older files get there
      sqlite_transaction          all or nothing; sqlite_errors: what SQLite's errors mean
    jsonl                       a directory of readable files for each session; its module lists its parts
    owner                       the lock that makes a process the owner of a file
    transfer                    one session to a JSONL directory, and from there into another store
    faulty                      any store, failing on demand, for tests
    conformance                 the contract as a test class for any backend (conformance_*: its chapters)

Imports chord (errors, and operations to apply); knows no actor. Everything public is imported from its module.
"""

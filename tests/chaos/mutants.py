"""Deliberate faults, each a patch of one module: whoever looks for violations must find every one of them.

A patch replaces text that occurs once in its module's source; it is applied when the module is imported (see
``apply``), so that every user of the module gets it.
"""

import importlib.abc
import importlib.util
import sys
from pathlib import Path

import msgspec


class Mutant(msgspec.Struct, frozen=True):
    """One fault: in ``module``, each text is replaced by the other."""

    name: str
    module: str
    old: str
    new: str
    scenarios: tuple[str, ...] = ()
    """Where to look first."""


MUTANTS = [
    # --- P1, P3: storage precedes visibility
    Mutant(
        "publish before durable",
        "actors.session.core",
        "        self._unpublished.append(publication)\n        self._write(self, batch)",
        "        self._publish(publication)\n        self._write(self, batch)",
    ),
    Mutant(
        "a gate that is always open",
        "actors.session.gate",
        "        if seq <= self.durable:\n            return",
        "        return",
    ),
    Mutant(
        "acknowledge before the group is stored",
        "actors.session.storage_actor",
        "                await self._store.storage.write([one.batch for one in group])",
        "                for one in group:\n"
        "                    one.core.durable(one.batch.seq)\n"
        "                await self._store.storage.write([one.batch for one in group])",
    ),
    Mutant(
        "acknowledge a group that failed",
        "actors.session.storage_actor",
        "                self._fail(group, error)\n                raise StorageLost from error\n            else:",
        "                for one in group:\n                    one.core.durable(one.batch.seq)\n"
        "                return\n            else:",
    ),
    Mutant(
        "a failed session goes on",
        "actors.session.core",
        "        if not self._dead:\n            self._end(lambda: SessionFailed(self.key, cause))\n",
        "        if not self._dead:\n            return\n",
    ),
    # --- P2: one line
    Mutant(
        "a commit number used twice",
        "actors.session.commit",
        "    core.seq += 1\n",
        "    core.seq += core.seq % 7 != 6\n",
    ),
    Mutant(
        "ids handed out again after a restart",
        "actors.session.core",
        "        self.seq, self.last_id, self.stored_wake = row.seq, row.last_id, row.wake",
        "        self.seq, self.last_id, self.stored_wake = row.seq, max(0, row.last_id - 2), row.wake",
    ),
    Mutant(
        "what a failed block staged stays in the tree",
        "actors.session.tx",
        "        self.core.forest.rollback()\n",
        "        self.core.forest.checkpoint()\n",
        scenarios=("aborting",),
    ),
    # --- P4, P6: effects
    Mutant(
        "no intent before a call",
        "actors.agent.execution",
        "        tx.goto(calls.Execute(arguments=call.arguments, replay=tool.replay))\n        slot = await",
        "        slot = await",
    ),
    Mutant(
        "unsafe calls run again",
        "actors.agent.tooltask",
        'elif state.replay == "safe" and tool is not None and tool.replay == "safe":',
        "elif tool is not None:",
        scenarios=("payment",),
    ),
    Mutant(
        "safe because it is now, not because it was then",
        "actors.agent.tooltask",
        'elif state.replay == "safe" and tool is not None and tool.replay == "safe":',
        'elif tool is not None and tool.replay == "safe":',
        scenarios=("parallel",),
    ),
    Mutant(
        "a key made in the effect phase",
        "actors.agent.toolcontext",
        'self.idempotency_key = f"{run.session}:{run.id}"',
        'self.idempotency_key = f"{run.session}:{run.id}:{id(self)}"',
    ),
    Mutant(
        "a memo that the last writer wins",
        "actors.task.tx",
        "        if name not in memos:\n            memos[name]",
        "        if True:\n            memos[name]",
        scenarios=("payment",),
    ),
    Mutant(
        "an outcome that is stored twice",
        "actors.agent.execution",
        "    entry = await tx.append(ToolResultEntry, data,",
        "    await tx.append(ToolResultEntry, data, conversation_id=run.conversation_id, model=[to_json(message)])\n"
        "    entry = await tx.append(ToolResultEntry, data,",
    ),
    Mutant(
        "an approval for whatever arguments",
        "actors.agent.calls",
        "    if asked.hash != given_hash:",
        "    if not given_hash:",
        scenarios=("approval",),
    ),
    Mutant(
        "a denial that approves",
        "actors.agent.calls",
        'await tx.wake(record.id, Denied(reason=f"was denied{said}"))',
        "await tx.wake(record.id, Approved(arguments=_.arguments))",
        scenarios=("approval",),
    ),
    Mutant(
        "no question before a call that needs approval",
        "actors.agent.tooltask",
        "    if await _needs_approval(tool, ready):\n",
        "    if False:\n",
        scenarios=("approval",),
    ),
    # --- P5: checkpoints
    Mutant(
        "nobody resumes what had begun",
        "actors.task.engine",
        "        if len(self.core.forest):\n            self._run(self._run_passes(recover=True))",
        "        return",
        scenarios=("aborting",),
    ),
    Mutant(
        "a deadline that is not stored",
        "actors.session.core",
        "return 0 if self.mail.outgoing or self.unfinished else self.forest.wake()",
        "return 0 if self.mail.outgoing or self.unfinished else None",
        scenarios=("aborting",),
    ),
    Mutant(
        "old code goes on after a hand-over",
        "actors.task.actor",
        "if newest is None or newest is self._invocation.definition:",
        "if newest is not None:",
        scenarios=("migration",),
    ),
    Mutant(
        "a migration that is not stored",
        "actors.task.engine",
        "            if staged is not record:\n                tx.stage_task(staged)\n",
        "",
        scenarios=("migration",),
    ),
    # --- P7: ownership
    Mutant(
        "an owner ends before its work",
        "supervisors.settlement",
        "if record is None or not isinstance(record.state, Completing) or self.forest.ownership.has_work(task):",
        "if record is None or not isinstance(record.state, Completing):",
        scenarios=("aborting",),
    ),
    Mutant(
        "abort handlers top-down",
        "supervisors.settlement",
        'return None if forest.ownership.has_work(record.id) else "abort"',
        'return "abort"',
        scenarios=("aborting",),
    ),
    Mutant(
        "an abort that stops at the first child",
        "supervisors.settlement",
        "        if has_intent(record):\n            self._cascade(task)\n",
        "",
        scenarios=("aborting",),
    ),
    Mutant(
        "a lost wake-up",
        "supervisors.settlement",
        "        self.done.candidates |= dict.fromkeys(self.forest.waiters(task))\n",
        "",
        scenarios=("aborting",),
    ),
    Mutant(
        "a wait that ends too early",
        "supervisors.settlement",
        'return "run" if forest.wait_is_over(record.id, record.state, now) else None',
        'return "run"',
        scenarios=("aborting",),
    ),
    Mutant(
        "an abort that crosses into background work",
        "supervisors.settlement",
        "        return not self.forest.ownership.is_background(node)",
        "        return True",
        scenarios=("aborting",),
    ),
    # --- P9: once
    Mutant(
        "a request admitted twice",
        "actors.conversation.inbox",
        "    if request_id is None:\n        return None\n    check_request_id",
        "    if True:\n        return None\n    check_request_id",
    ),
    Mutant(
        "a message that stays when it was received",
        "actors.session.mail",
        "            tx.delete_message(record)\n        else:\n            tx.core.mail.receipts",
        "            pass\n        else:\n            tx.core.mail.receipts",
        scenarios=("ping-pong",),
    ),
    Mutant(
        "a courier who forgets what was brought",
        "supervisors.mail",
        "        if message.id > mark:\n",
        "        if True:\n",
        scenarios=("ping-pong",),
    ),
    Mutant(
        "a message taken out before it has arrived",
        "actors.session.courier",
        "        elif (arrived := await self._bring(receiver, outbox, bundle)) is None:",
        "        elif await self._remove(bundle) or (arrived := await self._bring(receiver, outbox, bundle)) is None:",
        scenarios=("ping-pong",),
    ),
    # --- inbox and transcript
    Mutant(
        "a steer that is dropped",
        "actors.conversation.inbox",
        '    placed = await place_selected(tx, conversation_id, "paused" if paused else "postTools")\n',
        '    placed = await place_selected(tx, conversation_id, "paused" if paused else "postTools")\n'
        '    (await tx.doc(InboxDoc, conversation_id))["items"] = []\n',
        scenarios=("steering",),
    ),
    Mutant(
        "a steer that is placed and stays queued",
        "actors.conversation.inbox",
        '    remove_items(inbox, {item["id"] for item in chosen})\n',
        "",
        scenarios=("steering",),
    ),
    Mutant(
        "a steer that nobody owes an answer",
        "actors.conversation.inbox",
        '    live["run"]["inputs"].extend(placed.inputs)\n',
        "",
        scenarios=("steering",),
    ),
    Mutant(
        "a summary that keeps nothing",
        "actors.agent.compaction",
        '        "head": state.first_kept,',
        '        "head": run.id,',
        scenarios=("compaction",),
    ),
    Mutant(
        "usage counted twice",
        "actors.agent.generation",
        "    await count_message(tx, run.conversation_id, message)\n",
        "    await count_message(tx, run.conversation_id, message)\n" * 2,
    ),
    Mutant(
        "usage not counted",
        "actors.agent.generation",
        "    await count_message(tx, run.conversation_id, message)\n",
        "",
    ),
    Mutant(
        "a fork that takes over what runs",
        "actors.conversation.builtin",
        'LiveDoc: Doc[Json] = Doc("pi.live", checkpoint_when',
        'LiveDoc: Doc[Json] = Doc("pi.live", fork="current", checkpoint_when',
        scenarios=("fork",),
    ),
    # --- documents and watchers
    Mutant(
        "an operation that watchers are not told",
        "actors.session.commit",
        "else list(one.prepared.ops)\n",
        "else list(one.prepared.ops)[:1]\n",
        scenarios=("steering",),
    ),
    Mutant(
        "an operation that is not stored",
        "actors.session.documents",
        "one.loaded.encoder.encode(list(prepared.ops))",
        "one.loaded.encoder.encode(list(prepared.ops)[:1])",
    ),
]


# --- applying


class _Patched(importlib.abc.Loader):
    """Loads a module from patched source."""

    def __init__(self, path, mutant):
        self.path = path
        self.mutant = mutant

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        source = Path(self.path).read_text()
        assert source.count(self.mutant.old) == 1, f"{self.mutant.name}: the source has changed"
        exec(compile(source.replace(self.mutant.old, self.mutant.new), self.path, "exec"), module.__dict__)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant):
        self.mutant = mutant

    def find_spec(self, fullname, path, target=None):
        if fullname != f"perdure.{self.mutant.module}":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        spec.loader = _Patched(spec.origin, self.mutant)
        return spec


def apply(mutant):
    """Patch a module that nobody has imported yet."""
    assert f"perdure.{mutant.module}" not in sys.modules
    sys.meta_path.insert(0, _Finder(mutant))

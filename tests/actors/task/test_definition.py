"""How a task is written: what a class must say, and what becomes of it in storage."""

from types import new_class

import msgspec
import pytest
from perdure import DefinitionError, Phase, Restart, Task
from perdure.actors.task.definition import Definitions, decode, encode
from perdure.chord.errors import InvalidJson


class Card(msgspec.Struct):
    number: str


class Receipt(msgspec.Struct):
    amount: int


class Payment(Task[Card, Receipt], name="shop.payment", version=3):
    class PrepareCard(Phase):
        pass

    class Charge(Phase):
        idempotency_key: str
        attempt: int = 1

    async def prepare_card(self, run, state):
        pass

    async def charge(self, run, state):
        pass


def test_a_definition_knows_its_name_version_types_and_phases():
    assert (Payment.name, Payment.version) == ("shop.payment", 3)
    assert (Payment.input_type, Payment.result_type) == (Card, Receipt)
    assert list(Payment.phases) == ["prepare_card", "charge"]


def test_a_phase_is_stored_with_its_name_and_without_defaults():
    charge = Payment.Charge(idempotency_key="k")
    assert encode(charge) == {"phase": "charge", "idempotencyKey": "k"}
    payment = Payment()
    assert payment.decode_state({"phase": "charge", "idempotencyKey": "k"}) == charge
    assert payment.handler(charge) == payment.charge
    assert payment.initial(Card("1")) == Payment.PrepareCard()


def test_a_checkpoint_that_is_no_phase_of_the_definition_is_an_error():
    for wrong in ({"phase": "gone"}, {"phase": "charge"}, {}, {"phase": "charge", "idempotencyKey": 5}):
        with pytest.raises(msgspec.ValidationError):
            Payment().decode_state(wrong)


def test_a_task_needs_a_name():
    with pytest.raises(DefinitionError, match="stable name"):

        class Nameless(Task[None, None]):
            class Run(Phase):
                pass

            async def run(self, run, state):
                pass


def test_a_task_needs_the_types_of_its_input_and_result():
    with pytest.raises(DefinitionError, match="types of input and result"):

        class Untyped(Task, name="test.untyped"):
            class Run(Phase):
                pass

            async def run(self, run, state):
                pass


def test_a_task_needs_a_phase():
    with pytest.raises(DefinitionError, match="at least one phase"):

        class Phaseless(Task[None, None], name="test.phaseless"):
            pass


def test_every_phase_needs_a_handler():
    with pytest.raises(DefinitionError, match="'wait_a_bit' has no handler"):

        class Incomplete(Task[None, None], name="test.incomplete"):
            class Run(Phase):
                pass

            class WaitABit(Phase):
                pass

            async def run(self, run, state):
                pass


@pytest.mark.parametrize("name", ["Abort", "Initial", "Migrate", "Undecided", "Handler", "DecodeState"])
def test_a_phase_may_not_take_the_name_of_one_of_the_tasks_own_methods(name):
    """Its handler would be that method, which is made for something else."""
    body = {name: type(name, (Phase,), {"__qualname__": name})}
    with pytest.raises(DefinitionError, match="another name"):
        new_class("Clash", (Task[None, None],), {"name": "test.clash"}, lambda names: names.update(body))


def test_two_phases_may_not_have_the_same_stored_name():
    with pytest.raises(DefinitionError, match="'run'"):

        class Twice(Task[None, None], name="test.twice"):
            class One(Phase, tag="run"):
                pass

            class Two(Phase, tag="run"):
                pass

            async def run(self, run, state):
                pass


def test_values_are_stored_as_strict_json_that_nobody_else_holds():
    value = {"list": [1]}
    stored = encode(value)
    value["list"].append(2)
    assert stored == {"list": [1]}
    assert encode({1: Receipt(5)}) == {"1": {"amount": 5}}
    with pytest.raises(InvalidJson):
        encode(float("nan"))
    with pytest.raises(InvalidJson):
        encode(object())


def test_values_are_read_as_the_declared_type():
    assert decode({"amount": 5}, Receipt) == Receipt(5)
    assert decode({"anything": 1}, None) is None
    with pytest.raises(msgspec.ValidationError):
        decode({"amount": "five"}, Receipt)


def test_definitions_are_replaced_by_name_and_tell_their_listeners():
    definitions, heard = Definitions(), []
    dispose = definitions.subscribe(lambda: heard.append(definitions.get("shop.payment")))
    definitions.install(Payment)
    first = definitions.get("shop.payment")
    definitions.install(Payment)
    assert definitions.get("shop.payment") is not first
    definitions.uninstall("shop.payment")
    definitions.uninstall("unknown")
    dispose()
    dispose()
    definitions.install(Payment)
    assert [one is None for one in heard] == [False, False, True, True]


def test_a_restart_policy_is_a_restart():
    assert Payment.restart is None
    assert crashing(Restart(max=1)).restart == Restart(max=1)
    with pytest.raises(DefinitionError, match="Restart"):
        crashing(3)


def crashing(restart):
    class Crashing(Task[None, None], name="test.crashing", restart=restart):
        class Run(Phase):
            pass

        async def run(self, run, state):
            pass

    return Crashing

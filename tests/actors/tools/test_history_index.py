import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.tools.history_index import HistoryIndex, Passage

SAID = [
    Passage(1, 10, "user", "We will call the ship Argo."),
    Passage(1, 11, "assistant", "Noted: the ship is the Argo."),
    Passage(2, 20, "user", "Das Schiff heißt jetzt Überflieger."),
    Passage(2, 21, "assistant", "船の名前は月光です"),
    Passage(3, 30, "user", "nothing " * 500 + "needle " + "nothing " * 500),
]


@pytest.fixture(params=[True, False], ids=["fts5", "substring"])
def index(request):
    made = HistoryIndex(full_text=request.param)
    assert made.full_text is request.param
    made.add(SAID)
    yield made
    made.close()


def entries(found):
    return [one.entry for one in found]


def test_any_of_the_words_finds_a_passage_and_more_of_them_come_first(index):
    assert entries(index.find("argo call", 10))[0] == 10
    assert set(entries(index.find("ARGO", 10))) == {10, 11}
    assert entries(index.find("ARGO", 1)) in ([10], [11])
    assert entries(index.find("zeppelin", 10)) == []


def test_words_of_any_language_are_found_also_where_nothing_stands_between_them(index):
    assert entries(index.find("überflieger", 10)) == [20]
    assert entries(index.find("月光", 10)) == [21]


def test_a_long_passage_is_found_by_its_neighbourhood(index):
    [found] = index.find("needle", 10)
    assert "needle" in found.text
    assert len(found.text) < 1_000


def test_accents_are_no_obstacle_to_full_text_search():
    index = HistoryIndex()
    index.add(SAID)
    assert entries(index.find("uberflieger", 10)) == [20]
    index.close()


def test_what_stands_around_an_entry_is_shown_in_order(index):
    assert entries(index.around(1, 11, 3)) == [10, 11]
    assert entries(index.around(1, 10, 1)) == [10, 11]
    assert entries(index.around(1, 10, 0)) == [10]
    assert entries(index.around(9, 10, 3)) == []


@given(st.text(), st.booleans())
def test_no_question_is_an_error(question, full_text):
    """P11: whatever FTS5 would take for its query language is only words."""
    index = HistoryIndex(full_text=full_text)
    index.add(SAID)
    assert len(index.find(question, 3)) <= 3
    index.close()

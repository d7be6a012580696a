from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.tools.cron import Cron, Firing, InvalidSchedule, firings, parse_time, show_time, zone_of

BERLIN = "Europe/Berlin"
ZONES = [BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Casablanca", "UTC"]
TEXTS = [
    "* * * * *",
    "*/7 * * * *",
    "30 * * * *",
    "30 2 * * *",
    "0,30 1-3 * * *",
    "*/20 2 * * *",
    "0 0 1 * *",
    "15 2 * * sun",
]
YEAR_2026 = 1_767_225_600_000
HOUR = 3_600_000


def due(cron, zone, start, count):
    """The next due times after a moment, as the zone's clock shows them."""
    when, found = parse_time(start, zone), []
    for _ in range(count):
        when = Cron(cron, zone).after(when)
        found.append(show_time(when, zone)[5:])
    return found


def test_a_fixed_time_that_the_clock_skips_comes_due_when_it_jumps():
    assert due("30 2 * * *", BERLIN, "2026-03-28T12:00", 2) == ["03-29T03:00:00+02:00", "03-30T02:30:00+02:00"]
    assert due("0,30 2 * * *", BERLIN, "2026-03-28T12:00", 2) == ["03-29T03:00:00+02:00", "03-30T02:00:00+02:00"]


def test_a_fixed_time_that_comes_twice_comes_due_the_first_time_only():
    assert due("30 2 * * *", BERLIN, "2026-10-24T12:00", 2) == ["10-25T02:30:00+02:00", "10-26T02:30:00+01:00"]
    assert due("30 2 * * *", BERLIN, "2026-10-25T02:10+01:00", 1) == ["10-26T02:30:00+01:00"]


def test_every_so_many_minutes_keeps_to_what_the_clock_shows():
    assert due("*/30 * * * *", BERLIN, "2026-03-29T01:00", 3) == [
        "03-29T01:30:00+01:00",
        "03-29T03:00:00+02:00",
        "03-29T03:30:00+02:00",
    ]
    assert due("*/30 2 * * *", BERLIN, "2026-10-24T12:00", 4) == [
        "10-25T02:00:00+02:00",
        "10-25T02:30:00+02:00",
        "10-25T02:00:00+01:00",
        "10-25T02:30:00+01:00",
    ]


@given(
    st.sampled_from(TEXTS),
    st.sampled_from(ZONES),
    st.integers(0, 365 * 24 * 60).map(lambda minutes: YEAR_2026 + minutes * 60_000),
    st.integers(0, 50 * HOUR),
    st.integers(0, 50 * HOUR),
)
def test_due_times_are_the_same_however_the_time_is_cut(text, zone, start, first, second):
    """Whoever sleeps over some and whoever is awake for each sees the same due times, none twice, also where clocks are set."""
    cron = Cron(text, zone)
    middle, end = start + first, start + first + second
    parts = cron.newest(start, middle, 10_000) + cron.newest(middle, end, 10_000)
    assert parts == cron.newest(start, end, 10_000)
    assert all(a < b for a, b in pairwise([start, *parts]))
    following = cron.after(start)
    assert following > end if not parts else following == parts[0]
    assert cron.newest(start, end, 5) == parts[-5:]


@pytest.mark.parametrize("text", ["* * * * *", "* * * 1 *", "0 0 29 2 *"])
def test_a_long_absence_costs_no_more_than_its_newest_due_times(text, monkeypatch):
    import perdure.actors.tools.cron as module

    steps = []

    class Counted(module.CronSim):
        def __next__(self):
            steps.append(1)
            return super().__next__()

    monkeypatch.setattr(module, "CronSim", Counted)
    newest = Cron(text, BERLIN).newest(0, YEAR_2026, 100)
    assert len(steps) < 5_000
    assert len(newest) == (14 if "29" in text else 100)


@pytest.mark.parametrize(
    "text", ["", "* * * *", "* * * * * *", "61 * * * *", "0 0 31 4 *", "@daily", "0 9 * * fun", None, 7]
)
def test_cron_text_that_says_no_time_is_refused_in_words(text):
    """P11."""
    with pytest.raises(InvalidSchedule, match="cron text"):
        Cron(text, "UTC")


@pytest.mark.parametrize("zone", ["", "Europe", "Mars/Base", "../etc/passwd", "/etc/passwd", "a\0b", "é", None, 7])
def test_what_names_no_time_zone_is_refused_in_words(zone):
    """P11."""
    with pytest.raises(InvalidSchedule, match="expected a time zone"):
        zone_of(zone)


@pytest.mark.parametrize("said", ["tomorrow", "", "2026-13-01", None, 5])
def test_what_is_no_time_is_refused_in_words(said):
    """P11."""
    with pytest.raises(InvalidSchedule, match="expected a time such as"):
        parse_time(said, "UTC")


def test_a_time_without_offset_is_what_the_zones_clock_shows():
    assert parse_time("2026-07-01T12:00", BERLIN) == parse_time("2026-07-01T10:00Z", BERLIN)
    assert show_time(parse_time("2026-03-29T02:30", BERLIN), BERLIN) == "2026-03-29T03:30:00+02:00"


@pytest.mark.parametrize(
    ("rule", "now", "expected"),
    [
        ("skip", 3_000, [Firing(3_000, 2)]),
        ("skip", 63_000, [Firing(3_000, 2)]),
        ("skip", 63_001, []),
        ("once", 900_000, [Firing(3_000, 2)]),
        ("all", 900_000, [Firing(1_000), Firing(2_000), Firing(3_000)]),
    ],
)
def test_the_rule_decides_what_becomes_of_missed_due_times(rule, now, expected):
    assert firings([1_000, 2_000, 3_000], now, rule) == expected
    assert firings([], now, rule) == []

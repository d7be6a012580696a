"""Tools that come with perdure, built on what any extension could use. Tests: tests/actors/tools/."""

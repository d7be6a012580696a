"""What all tests share: the same examples in every run. HYPOTHESIS_PROFILE=explore looks for new ones."""

import os

from hypothesis import settings

settings.register_profile("same", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=1_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

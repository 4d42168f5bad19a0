"""How properties are tested: by examples alone. How long one took says what else the machine was doing."""

from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "untimed-same-everywhere", settings.get_profile("untimed"), derandomize=True, database=None
)
# Hypothesis takes its profile "ci" where it sees that it runs in CI
settings.load_profile("untimed-same-everywhere" if settings().derandomize else "untimed")

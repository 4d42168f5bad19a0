# The operator, which is also the init container that merges tuned settings (python -m slo_operator.overlay).
FROM python:3.11-slim-bookworm AS build
COPY requirements.lock /build/
RUN python -m venv /opt/inferenceslo \
 && /opt/inferenceslo/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r /build/requirements.lock
COPY pyproject.toml README.md LICENSE /build/
COPY operator /build/operator
COPY tuner /build/tuner
# the build back end comes from the lock's environment or not at all: a wheel of pure Python needs no more than hatchling
RUN /opt/inferenceslo/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps /build \
 && /opt/inferenceslo/bin/python -m compileall -q /opt/inferenceslo/lib

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="InferenceSLO operator" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/inferenceslo /opt/inferenceslo
ENV PATH=/opt/inferenceslo/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 8080 4318
ENTRYPOINT ["python", "-m", "slo_operator"]

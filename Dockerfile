# The operator, which is also the init container that merges tuned settings (python -m slo_operator.overlay).
FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="InferenceSLO operator" \
      org.opencontainers.image.licenses="Apache-2.0"
# Everything from the lock, by hash; the packages of this repository are plain Python and need no build.
COPY requirements.lock /tmp/
RUN python -m pip install --no-cache-dir --disable-pip-version-check --no-deps --require-hashes --no-compile \
      --target /opt/inferenceslo -r /tmp/requirements.lock \
 && rm /tmp/requirements.lock \
 && python -m compileall -q -j 2 /opt/inferenceslo
COPY operator/slo_operator /opt/inferenceslo/slo_operator
COPY tuner/slo_tuner /opt/inferenceslo/slo_tuner
RUN python -m compileall -q /opt/inferenceslo/slo_operator /opt/inferenceslo/slo_tuner
# USER: kopf asks for the user's name when it starts, and this one is in no passwd file
ENV PYTHONPATH=/opt/inferenceslo \
    USER=inferenceslo \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
EXPOSE 8080 4318
ENTRYPOINT ["python", "-m", "slo_operator"]

# Hosts for unmodified programs of verbs: this checkout, with all that `lab exec --verbs` installs and
# builds (docs/howto/rdma-in-ci.md). While an image is made no lab is up, so that the command then fails.
FROM debian:bookworm
COPY . /lab
WORKDIR /lab
RUN ./lab exec --verbs h1 -- true; test -f .venv/lib/softroce_lab/libibverbs.so.1

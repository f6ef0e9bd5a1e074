# The `larder` command with every backend:
#
#     docker build --tag larder .
#     docker run --rm larder check memory:
FROM rust:1.95-slim-trixie AS build
RUN apt-get update && apt-get install --yes --no-install-recommends cmake g++ make
WORKDIR /source
COPY . .
RUN cargo build --release --locked --package larder-cli --features full

FROM debian:trixie-slim
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
COPY --from=build /source/target/release/larder /usr/local/bin/larder
RUN useradd --create-home larder
USER larder
WORKDIR /home/larder
ENTRYPOINT ["larder"]

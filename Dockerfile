# An image with the two programs and nothing else, for a user without rights.
#
#   docker build -t quarry .
#   docker run --rm -p 127.0.0.1:11211:11211 quarry -m 1024
#
# What stands after the image's name are flags of quarryd. In a container the
# loopback addresses would be reached by nobody, so it listens on all: what -p
# publishes is what is open. docker stop ends it gracefully.

FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=auto -ldflags '-s -w' -o /out/ ./cmd/quarry ./cmd/quarryd

FROM scratch
COPY --from=build /out/quarryd /out/quarry /usr/bin/
USER 65532:65532
EXPOSE 11211
STOPSIGNAL SIGUSR1
ENTRYPOINT ["/usr/bin/quarryd", "-l", "*"]

# Every target is for people and for CI alike. What is longer than a line
# stands in scripts/; the modules are those of go.work.

# More arguments for go test: make test ARGS='-run TestName'
ARGS ?=
# Which benchmarks: make bench BENCH=Acquire
BENCH ?= .
# Which packages of the soak: make soak ONLY=redislock
ONLY ?=
# Where the command goes: make install BIN=/usr/local/bin
BIN ?= $(shell go env GOPATH)/bin

.PHONY: help hello install test soak bench lint lines fmt deps binaries demo cell

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

hello: ## two processes want one lock, and the second one waits for the first
	@scripts/hello

install: ## build the command into BIN, by default where go install does
	CGO_ENABLED=0 go build -buildvcs=auto -trimpath -ldflags '-s -w' -o '$(BIN)/holdfast' ./cmd/holdfast

test: ## install missing servers (Debian, as root), then run the tests that no slow machine fails
	@scripts/test $(ARGS)

soak: ## faults, crowds, fail-overs, long histories, other languages; an hour; goes on where it stopped
	@ONLY='$(ONLY)' scripts/soak $(ARGS)

bench: ## run the benchmarks (BENCH=regexp, ARGS=more)
	go test -tags soak -run '^$$' -bench '$(BENCH)' -benchmem $(ARGS) ./... ./internal/test/integration/bench ./zklock/bench ./interop

lint: ## gofmt, vet, staticcheck, go.mod tidiness, dependency lists, shell scripts
	@scripts/lint

lines: ## count the lines: product, support, tests, docs, and the largest packages
	@scripts/lines

fmt: ## format all Go files
	gofmt -w .

deps: ## rewrite each module's deps.txt, the list of modules that it links
	@scripts/deps

binaries: ## build the static binaries and completions of a release into dist/
	@scripts/binaries $(ARGS)

demo: ## the flash-sale demonstration
	@scripts/demo $(ARGS)

cell: ## three members of a lock service on this host, with TLS, and what to try
	@scripts/cell

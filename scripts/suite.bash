# SPDX-License-Identifier: Apache-2.0
# What the gate (scripts/test) and the soak (scripts/soak) share. It is sourced.
# shellcheck shell=bash

# begin_suite makes the directory $suite, which is removed at the end, and builds gotestsum.
begin_suite() {
	suite=$(mktemp -d)
	trap 'rm -rf "$suite"' EXIT
	gotestsum=$(GOWORK=off go -C internal/test/tools tool -n gotestsum)
	# Otherwise each program with the race detector waits for a second before it ends, and tests
	# start hundreds of programs.
	export GORACE="${GORACE:-} atexit_sleep_ms=10"
}

# The race detector needs a C compiler with its library's headers.
can_compile_c() {
	# shellcheck disable=SC2046 # CC may have arguments
	echo '#include <stdlib.h>' | $(go env CC) -x c -fsyntax-only - 2>/dev/null
}

# suite_tests FILE "PACKAGE..." [FLAG...] runs the tests of packages, and what failed again, and writes the
# events to the file. -trimpath: a clone in another folder finds what is in the build cache. -count=1: go
# test's cache does not notice that a server was installed. -vet=off: make lint does that.
suite_tests() {
	local file=$1 packages=$2
	shift 2
	echo "test: go test $*"
	"$gotestsum" --format pkgname-and-test-fails --format-hide-empty-pkg --hide-summary=skipped --jsonfile "$file" \
		--rerun-fails=2 --packages "$packages" -- \
		-trimpath -vet=off -count=1 -p 2 -parallel 4 -timeout "${suite_timeout:-8m}" "$@"
}

# The tasks of this repository. `just` lists them.

set positional-arguments

# List the tasks.
[private]
default:
    @just --list --unsorted

# Everything that must hold before a change is merged.
check *args:
    ./scripts/check "$@"

# Tests: `just test`, `just test -p weft-core`, `just test -E 'test(/cancel/)'`.
test *args:
    cargo nextest run --workspace "$@"

# Tests of the example skills, with nothing but Python and a shell.
test-skills *args:
    python3 examples/skills/test_skills.py "$@"

# Format, clippy and protocol lint; changes nothing.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    buf lint
    buf format -d --exit-code

# Format Rust and protocol files.
fmt:
    cargo fmt --all
    buf format -w

# Build and open the API documentation.
doc:
    cargo doc --workspace --no-deps --locked --open

# Licences, bans and sources of the dependencies.
deny:
    cargo deny check bans licenses sources

# A coordinator and a node in one process on loopback, with the example skills.
dev *args:
    cd examples && cargo run --quiet --bin weft -- dev "$@"

# Run the command line: `just weft call disk_usage path=/`.
weft *args:
    cargo run --quiet --bin weft -- "$@"

# The binary as it is shipped.
release:
    cargo build --release --locked --bin weft

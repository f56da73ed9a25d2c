# Sourced by the scripts beside it: where the repository is, what to say, which Python to use, what has changed.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

die() {
    say "$*"
    exit 1
}

# Is this a Python the project runs on, and can it make environments?
is_python() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# Print the path of a Python >= 3.11, or say what is missing. $PYTHON decides when it is set.
find_python() {
    local candidate found=""
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        if command -v "$candidate" >/dev/null && is_python "$candidate"; then
            found=$candidate
            if "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then
                command -v "$candidate"
                return
            fi
        fi
    done
    if [ -n "$found" ]; then
        die "$(command -v "$found") cannot make environments: install its venv module (Debian, Ubuntu: apt install python3-venv)"
    fi
    die "Python 3.11 or newer is needed and none was found; install it, or name it: PYTHON=/path/to/python3 $0"
}

# Print the path of the Python that a path or a version such as 3.13 names, on PATH or of pyenv.
named_python() {
    local candidate
    for candidate in "$1" "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1"*/bin/python; do
        if command -v "$candidate" >/dev/null && is_python "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    die "no Python $1 was found; install it, or give the path of its program"
}

# install_lock PYTHON LOCK [OPTION OF UV]: install the files that a lock names, nothing else, and check that they fit together.
# The lock is complete, so nothing is resolved: pip would look for an extra (json-repair[schema]) anew and might find a newer
# release. Nor is anything built: that would ask the index for whatever a build needs.
# The uv of scripts/setup takes a tenth of pip's time. It does not read pip's configuration, so pip works where that says more.
install_lock() {
    local only=(--no-deps --require-hashes --only-binary :all: -r "$2")
    if [ ! -x .venv/bin/uv ] || needs_pip "$1" || ! UV_NO_CONFIG=1 .venv/bin/uv pip install --python "$1" "${only[@]}" "${@:3}" >&2; then
        "$1" -m pip install "${only[@]}" >&2
    fi
    "$1" -m pip check >&2 || die "the packages of $2 do not fit together; run scripts/lock --upgrade, or report it"
}

# needs_pip PYTHON: does the configuration of its pip name an index in place of PyPI, or a way to it?
needs_pip() { "$1" -m pip config list | grep -E "\.(index-url|no-index|proxy|client-cert|trusted-host)=" >/dev/null; }

# locked_package LOCK NAME: print the lines of a lock for one package.
locked_package() { awk -v name="$2==" '/^[a-z]/ { found = index($0, name) == 1 } found' "$1"; }

# hash_of PYTHON [WORD...] -- FILE...: one hash over words and files.
hash_of() {
    "$1" - "${@:2}" <<'PY'
import hashlib, pathlib, sys
split = sys.argv.index("--")
digest = hashlib.sha256("\0".join(sys.argv[1:split]).encode())
for name in sys.argv[split + 1:]:
    digest.update(name.encode() + b"\0" + hashlib.sha256(pathlib.Path(name).read_bytes()).digest())
print(digest.hexdigest())
PY
}

# is_stamped FILE HASH: was this done already with these very inputs?
is_stamped() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }

# copy_files DIRECTORY: copy the files that git knows or does not ignore, as they are now.
copy_files() {
    git ls-files -co --exclude-standard -z | while IFS= read -r -d "" file; do
        [ ! -e "$file" ] || printf '%s\0' "$file" # deleted, and not committed yet
    done | tar --null -T - -cf - | tar -xf - -C "$1"
}

# make_environment DIRECTORY LOCK: a Python environment with the packages of a lock, made anew when the lock has changed.
make_environment() {
    local environment=$1 lock=$2 python inputs
    python=$(find_python)
    inputs=$(hash_of "$python" "$("$python" -VV)" "$ROOT" -- "$lock")
    if is_stamped "$environment/.stamp" "$inputs"; then return; fi
    say "installing the packages of $lock"
    rm -rf "$environment"
    "$python" -m venv "$environment"
    install_lock "$environment/bin/python" "$lock"
    echo "$inputs" >"$environment/.stamp"
}

# npm_install NAME: install the locked packages of tests/peers/NAME into .peers/NAME.
npm_install() {
    local name=$1 python inputs
    python=$(find_python)
    inputs=$(hash_of "$python" "$(uname -sm)" -- "tests/peers/$name/package.json" "tests/peers/$name/package-lock.json" "tests/peers/$name/.npmrc")
    if is_stamped ".peers/$name/.stamp" "$inputs"; then return; fi
    command -v npm >/dev/null || die "npm is needed (Debian, Ubuntu: apt install npm)"
    say "installing the npm packages of tests/peers/$name"
    rm -rf ".peers/$name"
    mkdir -p ".peers/$name"
    cp "tests/peers/$name/package.json" "tests/peers/$name/package-lock.json" "tests/peers/$name/.npmrc" ".peers/$name/"
    (cd ".peers/$name" && PATH="$ROOT/.peers/bin:$PATH" npm ci --ignore-scripts --loglevel=error --no-progress >/dev/null)
    echo "$inputs" >".peers/$name/.stamp"
}

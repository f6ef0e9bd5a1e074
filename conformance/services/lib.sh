# shellcheck shell=bash
# Functions shared by the service scripts: folders, accounts, installation, start and stop. Sourced, never run.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
workspace=$(cd "$here/../.." && pwd -P)

say() { printf 'services: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# Exit code of `status` and `env` for a service that is not running, as in the Linux Standard Base.
# shellcheck disable=SC2034
readonly STOPPED=3

# Servers such as Postgres refuse to run as root. If root starts them, they run under an unprivileged account.
if [ "$(id -u)" = 0 ]; then account=${LARDER_SERVICES_USER:-nobody}; else account=$(id -un); fi

# Runs a command as the services' account, in the services' folder. The environment is empty, so that the caller's PGPORT
# or LD_PRELOAD does not affect the servers.
as_account() {
    local run=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$services" LC_ALL=C)
    if [ "$(id -u)" = 0 ]; then
        run=(setpriv --reuid "$account" --regid "$(id -g "$account")" --clear-groups --no-new-privs "${run[@]}")
    fi
    # Closes the lock's descriptor: a server that inherited it would hold the lock until it ends.
    (cd "$services" && exec "${run[@]}" "$@" 9>&-)
}

# Sets $services to the services' folder: `target/services`. If the account cannot reach the workspace, as in a clone
# under /root, the folder is under /var/tmp.
choose_services() {
    services=${LARDER_SERVICES_DIR:-$workspace/target/services}
    make_services
    [ -n "${LARDER_SERVICES_DIR:-}" ] || as_account test -x "$services" 2>/dev/null || {
        services=/var/tmp/larder-services-$(printf %s "$workspace" | sha256sum | cut -c 1-12)
        make_services
    }
    as_account test -x "$services" 2>/dev/null || die "the account '$account' cannot reach $services"
    choose_homes
}

make_services() {
    (umask 022 && mkdir -p "$services") || die "cannot create $services"
    # In /var/tmp another user could have created it first.
    [ -O "$services" ] || die "$services belongs to another user; set LARDER_SERVICES_DIR"
    services=$(cd "$services" && pwd -P)
}

# Sets $homes to the parent of the servers' data folders. LARDER_SERVICES_SET names a second set of servers, which shares
# the installation and has separate folders below `sets`. Give the second set other ports.
choose_homes() {
    homes=$services
    [ -n "${LARDER_SERVICES_SET:-}" ] || return 0
    [[ $LARDER_SERVICES_SET =~ ^[a-z0-9-]{1,40}$ ]] ||
        die "LARDER_SERVICES_SET is $LARDER_SERVICES_SET; it may have 1 to 40 lower-case letters, digits and '-'"
    homes=$services/sets/$LARDER_SERVICES_SET
    (umask 022 && mkdir -p "$homes") || die "cannot create $homes"
}

# Only one command at a time works on a service. The next one waits up to 30 minutes, because a build can take long.
lock() {
    exec 9>"$homes/$(basename "$0").lock"
    flock --wait 1800 9 || die "another command has held $homes/$(basename "$0").lock for 30 minutes; stop it and try again"
}

# Writes a random password into a file that only its owner can read, unless the file exists.
make_password() {
    [ -s "$1" ] || (umask 077 && od -An -N"${2:-24}" -tx1 /dev/urandom | tr -d ' \n' >"$1.new" && mv "$1.new" "$1")
}

# Creates a service's folder, which only the services' account can read.
make_home() {
    (umask 077 && mkdir -p "$1")
    [ "$(id -u)" != 0 ] || chown "$account:" "$1"
}

# Makes the services' account the owner and the only reader of files.
hand_over() {
    chmod 600 "$@"
    [ "$(id -u)" != 0 ] || chown "$account:" "$@"
}

# Prints the path of a program if the services' account can run it.
# shellcheck disable=SC2016
account_has() { as_account bash -c 'command -v "$0"' "$1" 2>/dev/null; }

# Installs the packages of a requirements file, once for each version of the file.
install_requirements() {
    local file=$1 python=${2:-python3} venv=${3:-$services/venv} mark
    mark=$venv/larder-$(sha256sum "$file" | cut -c 1-12)
    [ ! -e "$mark" ] || return 0
    say "installing $(sed -n 's/^\([a-z][^ ]*==[^ ]*\).*/\1/p' "$file" | head -n 1) and its dependencies into $venv"
    (
        umask 022
        # Two services can share the folder.
        flock 8
        [ -x "$venv/bin/pip" ] || "$python" -m venv --clear "$venv" || exit 1
        PIP_DISABLE_PIP_VERSION_CHECK=1 "$venv/bin/pip" install --quiet --no-deps --only-binary :all: --require-hashes \
            --requirement "$file" >&2 && : >"$mark"
    ) 8>"$venv.lock" ||
        die "cannot install $file; it needs Python 3.10 to 3.14 with venv (Debian: python3-venv) and a package index"
}

# Builds a program of a crate once for all clones, and sets $binary to its path. The build stays in the cache. The
# services' folder has a copy, because the services' account may be unable to read the cache.
install_crate() {
    local crate=$1 version=$2 program=$3 cache kept
    shift 3
    binary=$services/bin/$crate-$version
    [ ! -x "$binary" ] || return 0
    cache=${LARDER_SERVICES_CACHE:-${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/larder}
    kept=$cache/$crate-$version
    mkdir -p "$cache" || die "cannot create $cache; set LARDER_SERVICES_CACHE"
    (
        flock 8
        [ -x "$kept/bin/$program" ] || build_crate "$kept" "$crate" "$version" "$@"
    ) 8>"$kept.lock" || die "cannot build $crate $version; it needs cargo, a C compiler and make; the log is $kept.log"
    (umask 022 && mkdir -p "$services/bin" && cp "$kept/bin/$program" "$binary.new" && mv "$binary.new" "$binary")
}

# Runs a build without the caller's settings: RUSTFLAGS, CFLAGS or CARGO_BUILD_TARGET would change the program that
# every clone uses. It keeps the locations of the tools and the settings of the network.
clean_environment() {
    local name kept=()
    for name in PATH HOME TMPDIR CARGO_HOME RUSTUP_HOME SSL_CERT_FILE SSL_CERT_DIR \
        http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY CARGO_HTTP_CAINFO CARGO_NET_OFFLINE; do
        [ -z "${!name:-}" ] || kept+=("$name=${!name}")
    done
    env -i LC_ALL=C "${kept[@]}" "$@"
}

build_crate() {
    local kept=$1 crate=$2 version=$3 build
    shift 3
    say "building $crate $version once for this machine, which takes some minutes; the log is $kept.log"
    # This process holds the lock, so these folders are from interrupted builds.
    rm -rf "$kept".build.*
    build=$(mktemp -d "$kept.build.XXXXXX")
    # Outside of the workspace, because its Cargo settings do not apply to this build.
    if (cd / && clean_environment CARGO_TARGET_DIR="$build/target" "${CARGO:-cargo}" install "$crate" --version "$version" \
        --locked --root "$build/root" "$@" </dev/null >"$kept.log" 2>&1); then
        rm -rf "$kept" && mv "$build/root" "$kept" && rm -rf "$build"
    else
        rm -rf "$build"
        tail -n 5 "$kept.log" >&2
        return 1
    fi
}

# A daemon is a server that runs in the foreground. Its folder contains `data`, which is its working folder, and the files
# `pid`, `port` and `log`.

# Prints the process id of a folder's server if it runs. After a crash, the pid file can name an unrelated process, so the
# process must work in the data folder. A zombie has no working folder.
daemon_pid() {
    local pid
    pid=$(cat "$1/pid" 2>/dev/null) || return 1
    [[ $pid =~ ^[0-9]+$ ]] && daemon_is "$1" "$pid" && printf '%s\n' "$pid"
}

daemon_is() { [ "$(readlink "/proc/$2/cwd" 2>/dev/null)" = "$1/data" ]; }

daemon_port() { cat "$1/port"; }

port_answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Sets $port to the port of a folder's server: the current one if it runs, else the variable's value or the default.
choose_port() {
    local folder=$1 what=$2 variable=$3 usual=$4 running
    port=${!variable:-}
    if daemon_pid "$folder" >/dev/null; then
        running=$(daemon_port "$folder")
        [ "${port:-$running}" = "$running" ] ||
            die "$what already runs on port $running; stop it to move it to port $port"
        port=$running
        return 0
    fi
    port=${port:-$usual}
    check_port "$port" "$what" "$variable"
}

# Fails if a server cannot be started on a port; the message names the port's variable.
check_port() {
    { [[ $1 =~ ^[0-9]{1,5}$ ]] && [ "$1" -le 65000 ]; } || die "$3 is $1; set a port from 0 to 65000"
    ! port_answers "$1" || die "another server listens on port $1, where $2 should; set $3"
}

# Starts a folder's server on $port in a separate session, so that Ctrl-C does not stop it.
daemon_start() {
    local folder=$1
    shift
    # shellcheck disable=SC2016
    as_account bash -c 'mkdir -p "$0/data" && rm -f "$0/pid" && echo "$1" >"$0/port"' "$folder" "$port"
    # shellcheck disable=SC2016
    as_account setsid --fork bash -c 'cd "$0/data" && echo $$ >"$0/pid" && exec "$@" >>"$0/log" 2>&1' "$folder" "$@" \
        </dev/null >/dev/null 2>&1
    for _ in {1..100}; do [ ! -s "$folder/pid" ] || return 0; sleep 0.05; done
    die "cannot start a server in $folder; the log is $folder/log"
}

# Waits up to 90 s until the command succeeds, which shows that the server is ready. Recovery after a crash can take long
# on a busy machine.
daemon_wait() {
    local folder=$1 what=$2 deadline=$((SECONDS + 90))
    shift 2
    while ((SECONDS < deadline)); do
        daemon_pid "$folder" >/dev/null || break
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    tail -n 5 "$folder/log" >&2
    daemon_stop "$folder" "$what"
    die "$what did not start; the log is $folder/log"
}

# Sends TERM, and after 30 s KILL.
daemon_stop() {
    local folder=$1 what=$2 pid signal
    for signal in TERM KILL; do
        pid=$(daemon_pid "$folder") || return 0
        kill -s "$signal" "$pid" 2>/dev/null || true
        for _ in {1..300}; do daemon_is "$folder" "$pid" || return 0; sleep 0.1; done
    done
    die "$what (process $pid) did not stop within 60 s"
}

# Ends a folder's server with KILL, as a crash would.
daemon_kill() {
    local folder=$1 what=$2 pid
    pid=$(daemon_pid "$folder") || { say "$what is stopped"; return "$STOPPED"; }
    kill -s KILL "$pid" 2>/dev/null || true
    for _ in {1..300}; do
        daemon_is "$folder" "$pid" || { say "$what was killed"; return 0; }
        sleep 0.02
    done
    die "$what (process $pid) did not end within 6 s of KILL"
}

# Runs the command of a service. Each script defines the functions `up`, `stop`, `crash`, `status` and `print_env`, and
# sets $home to the server's folder. A service with roles also defines `grant`, which gives a role for tests its rights
# and prints its URL, and `revoke`, which takes the rights away.
service() {
    local what=$1
    shift
    case ${1:-} in
        up) lock; up ;;
        down) lock; stop; say "$what is stopped" ;;
        kill) lock; crash "${@:2}" ;;
        status) status ;;
        env) print_env ;;
        remove) lock; stop; rm -rf "$home"; say "$what is stopped and its data is removed" ;;
        grant | revoke) declare -F "$1" >/dev/null || die "$what has no command $1"; lock; "$1" ;;
        *) die "usage: $0 up|down|status|env|kill|remove" ;;
    esac
}

# shellcheck shell=bash
# What the service scripts share: where things live, who runs them, what is installed. Sourced, never run.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
workspace=$(cd "$here/../.." && pwd -P)

say() { printf 'services: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# Exit code of `status` and `env` for a service that is not running, as in the Linux Standard Base.
# shellcheck disable=SC2034
readonly STOPPED=3

# Servers such as Postgres refuse root, so as root they run under an account that owns nothing else.
if [ "$(id -u)" = 0 ]; then account=${LARDER_SERVICES_USER:-nobody}; else account=$(id -un); fi

# Runs a command as the services' account, in the services' folder, without the caller's environment: a PGPORT or
# LD_PRELOAD meant for something else must not reach the servers.
as_account() {
    local run=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$services" LC_ALL=C)
    if [ "$(id -u)" = 0 ]; then
        run=(setpriv --reuid "$account" --regid "$(id -g "$account")" --clear-groups --no-new-privs "${run[@]}")
    fi
    # The lock stays here: a server that inherits it would hold it for life.
    (cd "$services" && exec "${run[@]}" "$@" 9>&-)
}

# Gives the services' folder in $services: `target/services`, or one under /var/tmp where the account cannot reach the
# workspace, as in a clone under /root.
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
    # In /var/tmp somebody else could have made it first.
    [ -O "$services" ] || die "$services belongs to somebody else; set LARDER_SERVICES_DIR"
    services=$(cd "$services" && pwd -P)
}

# Gives in $homes where the servers' own folders are: the services' folder, or, for a second set of servers over the same
# installation, one below it that LARDER_SERVICES_SET names. A second set takes ports of its own, too.
choose_homes() {
    homes=$services
    [ -n "${LARDER_SERVICES_SET:-}" ] || return 0
    [[ $LARDER_SERVICES_SET =~ ^[a-z0-9-]{1,40}$ ]] ||
        die "LARDER_SERVICES_SET is no name of small letters, digits and '-': $LARDER_SERVICES_SET"
    homes=$services/sets/$LARDER_SERVICES_SET
    (umask 022 && mkdir -p "$homes") || die "cannot create $homes"
}

# One command at a time works on a service; the next one waits, also for a server that is being built.
lock() {
    exec 9>"$homes/$(basename "$0").lock"
    flock --wait 1800 9 || die "another command has held $homes/$(basename "$0").lock for half an hour"
}

# Writes a random password into a file that only its owner reads, unless there is one.
make_password() {
    [ -s "$1" ] || (umask 077 && od -An -N"${2:-24}" -tx1 /dev/urandom | tr -d ' \n' >"$1.new" && mv "$1.new" "$1")
}

# Makes a service's own folder, which the services' account alone reads.
make_home() {
    (umask 077 && mkdir -p "$1")
    [ "$(id -u)" != 0 ] || chown "$account:" "$1"
}

# Gives a file to the services' account and to nobody else.
hand_over() {
    chmod 600 "$@"
    [ "$(id -u)" != 0 ] || chown "$account:" "$@"
}

# The path of a program that the services' account finds and may run.
# shellcheck disable=SC2016
account_has() { as_account bash -c 'command -v "$0"' "$1" 2>/dev/null; }

# Installs the packages of one requirements file, once for each version of that file, with a Python or the usual one.
install_requirements() {
    local file=$1 python=${2:-python3} venv=${3:-$services/venv} mark
    mark=$venv/larder-$(sha256sum "$file" | cut -c 1-12)
    [ ! -e "$mark" ] || return 0
    say "installing $(sed -n 's/^\([a-z][^ ]*==[^ ]*\).*/\1/p' "$file" | head -n 1) and what it needs into $venv"
    (
        umask 022
        # Two services may share the folder.
        flock 8
        [ -x "$venv/bin/pip" ] || "$python" -m venv --clear "$venv" || exit 1
        PIP_DISABLE_PIP_VERSION_CHECK=1 "$venv/bin/pip" install --quiet --no-deps --only-binary :all: --require-hashes \
            --requirement "$file" >&2 && : >"$mark"
    ) 8>"$venv.lock" ||
        die "cannot install $file: Python 3.10 to 3.14 with venv (Debian: python3-venv) and a package index are needed"
}

# Gives in $binary a program of a crate, built once for all clones: the build is kept in the cache, and a copy in the
# services' folder, as the account may not reach the cache of another one.
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
    ) 8>"$kept.lock" || die "cannot build $crate $version: cargo, a C compiler and make are needed; see $kept.log"
    (umask 022 && mkdir -p "$services/bin" && cp "$kept/bin/$program" "$binary.new" && mv "$binary.new" "$binary")
}

build_crate() {
    local kept=$1 crate=$2 version=$3 build
    shift 3
    say "building $crate $version, once for this machine; it takes minutes ($kept.log)"
    # The lock is held, so these belong to builds that were interrupted.
    rm -rf "$kept".build.*
    build=$(mktemp -d "$kept.build.XXXXXX")
    # Away from the workspace, whose settings of cargo are not meant for it.
    if (cd / && env -u RUSTFLAGS CARGO_TARGET_DIR="$build/target" "${CARGO:-cargo}" install "$crate" --version "$version" \
        --locked --root "$build/root" "$@" </dev/null >"$kept.log" 2>&1); then
        rm -rf "$kept" && mv "$build/root" "$kept" && rm -rf "$build"
    else
        rm -rf "$build"
        tail -n 5 "$kept.log" >&2
        return 1
    fi
}

# A daemon is a server that stays in the foreground, in a folder of its own: it works in `data`; `pid`, `port` and `log`
# are beside it.

# The process of a folder's server, if it runs. It is ours and no other if it works in that data folder, while the file
# that a crash left behind may name any process by now. A process that waits for its parent has no working folder.
daemon_pid() {
    local pid
    pid=$(cat "$1/pid" 2>/dev/null) || return 1
    [[ $pid =~ ^[0-9]+$ ]] && daemon_is "$1" "$pid" && printf '%s\n' "$pid"
}

daemon_is() { [ "$(readlink "/proc/$2/cwd" 2>/dev/null)" = "$1/data" ]; }

daemon_port() { cat "$1/port"; }

port_answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Gives in $port where a folder's server is to listen: where it does, else where the variable says, else as usual.
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

# Whether a server can be started on a port, whose variable is named where it cannot.
check_port() {
    { [[ $1 =~ ^[0-9]{1,5}$ ]] && [ "$1" -le 65000 ]; } || die "$3 is not a port: $1"
    ! port_answers "$1" || die "another server listens on port $1, where $2 should; set $3"
}

# Starts a folder's server on $port in a session of its own, so that Ctrl-C does not reach it.
daemon_start() {
    local folder=$1
    shift
    # shellcheck disable=SC2016
    as_account bash -c 'mkdir -p "$0/data" && rm -f "$0/pid" && echo "$1" >"$0/port"' "$folder" "$port"
    # shellcheck disable=SC2016
    as_account setsid --fork bash -c 'cd "$0/data" && echo $$ >"$0/pid" && exec "$@" >>"$0/log" 2>&1' "$folder" "$@" \
        </dev/null >/dev/null 2>&1
    for _ in {1..100}; do [ ! -s "$folder/pid" ] || return 0; sleep 0.05; done
    die "cannot start a server in $folder"
}

# Waits until a folder's server answers, which is when the command succeeds, for a minute and a half: a server that died
# may have much to read, on a machine that has other things to do.
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
    die "$what did not start: $folder/log"
}

# Politely first; at once if that does not come to an end.
daemon_stop() {
    local folder=$1 what=$2 pid signal
    for signal in TERM KILL; do
        pid=$(daemon_pid "$folder") || return 0
        kill -s "$signal" "$pid" 2>/dev/null || true
        for _ in {1..300}; do daemon_is "$folder" "$pid" || return 0; sleep 0.1; done
    done
    die "$what (process $pid) does not stop"
}

# As a crash ends it.
daemon_kill() {
    local folder=$1 what=$2 pid
    pid=$(daemon_pid "$folder") || { say "$what is stopped"; return "$STOPPED"; }
    kill -s KILL "$pid" 2>/dev/null || true
    for _ in {1..300}; do
        daemon_is "$folder" "$pid" || { say "$what was killed"; return 0; }
        sleep 0.02
    done
    die "$what (process $pid) does not end"
}

# The words that every service takes, done by the functions `up`, `stop`, `crash`, `status` and `print_env`; the
# server's own folder is $home.
service() {
    local what=$1
    shift
    case ${1:-} in
        up) lock; up ;;
        down) lock; stop; say "$what is stopped" ;;
        kill) lock; crash "${@:2}" ;;
        status) status ;;
        env) print_env ;;
        remove) lock; stop; rm -rf "$home"; say "$what is stopped, and its data removed" ;;
        *) die "usage: $0 up|down|status|env|kill|remove" ;;
    esac
}

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
}

make_services() {
    (umask 022 && mkdir -p "$services") || die "cannot create $services"
    # In /var/tmp somebody else could have made it first.
    [ -O "$services" ] || die "$services belongs to somebody else; set LARDER_SERVICES_DIR"
    services=$(cd "$services" && pwd -P)
}

# One command at a time works on the folder; the next one waits.
lock() {
    exec 9>"$services/lock"
    flock --wait 300 9 || die "another command has held $services/lock for five minutes"
}

# Writes a random password into a file that only its owner reads, unless there is one.
make_password() {
    [ -s "$1" ] || (umask 077 && od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$1.new" && mv "$1.new" "$1")
}

# Installs the packages of one requirements file, once for each version of that file.
install_requirements() {
    local file=$1 mark venv=$services/venv
    mark=$venv/larder-$(sha256sum "$file" | cut -c 1-12)
    [ ! -e "$mark" ] || return 0
    say "installing $(sed -n 's/^\([a-z][^ ]*==[^ ]*\).*/\1/p' "$file" | tr '\n' ' ')into $venv"
    (
        umask 022
        [ -x "$venv/bin/pip" ] || python3 -m venv --clear "$venv" || exit 1
        PIP_DISABLE_PIP_VERSION_CHECK=1 "$venv/bin/pip" install --quiet --no-deps --only-binary :all: --require-hashes \
            --requirement "$file" >&2 && : >"$mark"
    ) || die "cannot install $file: Python 3.10 to 3.14 with venv (Debian: python3-venv) and a package index are needed"
}

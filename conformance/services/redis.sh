# shellcheck shell=bash disable=SC2154
# Functions shared by the Redis services: programs, settings, commands. Sourced after lib.sh, never run.

# Sets $redis_server and $redis_cli to the machine's programs, or to those of packages in the services' folder. $redis_env
# is the prefix of their command lines.
find_redis() {
    local packages=$services/redis-packages
    redis_env=(env)
    if redis_server=$(account_has redis-server) && redis_cli=$(account_has redis-cli); then return 0; fi
    redis_server=$packages/usr/bin/redis-server redis_cli=$packages/usr/bin/redis-cli
    redis_env=(env "LD_LIBRARY_PATH=$(printf '%s:' "$packages"/usr/lib/*-linux-gnu* "$packages"/lib/*-linux-gnu*)")
    [ -e "$packages/bin/redis-cli" ]
}

# Unpacks Debian's packages instead of installing them. This works without root and starts no system service.
install_redis() {
    local version
    (
        flock 8
        find_redis || unpack_redis
    ) 8>"$services/redis-packages.lock" ||
        die "cannot install redis; install redis-server 7 or later, or apt-get with the package lists of Debian or Ubuntu"
    find_redis
    version=$(redis_version)
    [ "${version%%.*}" -ge 7 ] 2>/dev/null || die "$redis_server is version ${version:-unknown}; install redis 7 or later"
}

unpack_redis() {
    local packages=$services/redis-packages names
    command -v apt-get dpkg >/dev/null || return 1
    say "unpacking redis-server from packages into $packages"
    names=$(redis_packages)
    if [ -z "$names" ] && [ "$(id -u)" = 0 ]; then
        # A bare image has no package lists, and only root can fetch them.
        apt-get update -qq >&2 || return 1
        names=$(redis_packages)
    fi
    [ -n "$names" ] || return 1
    rm -rf "$packages" && (umask 022 && mkdir -p "$packages/download") || return 1
    # As root, apt-get would download under another account, which cannot write here.
    # shellcheck disable=SC2086
    (cd "$packages/download" && apt-get -qq -o APT::Sandbox::User=root download $names >&2) || return 1
    local deb
    for deb in "$packages"/download/*.deb; do dpkg -x "$deb" "$packages" || return 1; done
    rm -rf "$packages/download" && write_redis_starters "$packages/bin"
}

# Writes wrapper scripts that set the library path of the unpacked programs. The last one also marks the installation as
# complete.
write_redis_starters() {
    local folder=$1 program
    mkdir -p "$folder" || return 1
    for program in redis-benchmark redis-cli; do
        cat >"$folder/$program.new" <<'STARTER' || return 1
#!/bin/sh
packages=$(cd "$(dirname "$0")/.." && pwd)
LD_LIBRARY_PATH=$(printf '%s:' "$packages"/usr/lib/*-linux-gnu* "$packages"/lib/*-linux-gnu*)
export LD_LIBRARY_PATH
exec "$packages/usr/bin/$(basename "$0")" "$@"
STARTER
        chmod 755 "$folder/$program.new" && mv "$folder/$program.new" "$folder/$program" || return 1
    done
}

# Prints the package and its missing dependencies.
redis_packages() {
    apt-get -qq --simulate --no-install-recommends install redis-server 2>/dev/null | sed -n 's/^Inst \([^ ]*\) .*/\1/p'
}

redis_version() { as_account "${redis_env[@]}" "$redis_server" --version | sed -n 's/.* v=\([0-9.]*\).*/\1/p'; }

# Writes the settings of a server on $port into a folder. Further arguments are more lines.
write_redis_config() {
    local folder=$1
    (
        umask 077
        cat >"$folder/redis.conf" <<CONFIG
bind 127.0.0.1
port $port
dir $folder/data
requirepass $(cat "$password_file")
masterauth $(cat "$password_file")
appendonly yes
appendfsync always
save ""
maxmemory-policy noeviction
notify-keyspace-events ""
CONFIG
        [ "$#" = 1 ] || printf '%s\n' "${@:2}" >>"$folder/redis.conf"
    )
    hand_over "$folder/redis.conf"
}

# Runs redis-cli. The password goes through its environment, so no process list shows it.
redis_ask() {
    # shellcheck disable=SC2016
    as_account "${redis_env[@]}" bash -c 'REDISCLI_AUTH=$(cat "$0") exec "$@"' "$password_file" "$redis_cli" \
        -h 127.0.0.1 --no-auth-warning "$@"
}

redis_answers() { [ "$(redis_ask -p "$1" PING 2>/dev/null)" = PONG ]; }

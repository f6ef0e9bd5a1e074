//! The reasons why a figure misses its target, from profiles and other measurements.

/// Returns the known reason for a missed target.
pub(super) fn reason(figure: &str) -> Option<&'static str> {
    REASONS.iter().find(|(name, _)| *name == figure).map(|(_, reason)| *reason)
}

const REASONS: &[(&str, &str)] = &[
    (
        "memory-append",
        "a store call uses a trait object, a boxed future and a Vec of messages, which are two allocations \
         in addition to the one for the message. Finding and locking the record and counting its bytes takes \
         seven locked instructions; the peer needs two. `memory-append-call` uses the same call on both \
         sides.",
    ),
    (
        "memory-append-call",
        "2.2 to 2.4 in three runs: finding and locking the record, checking limits and counting bytes takes \
         about 75 ns more than a boxed future and a Vec.",
    ),
    (
        "memory-append-2",
        "two threads do nearly twice the work of one (`memory-append-scaling`), but each append has the cost \
         of `memory-append`. The peer's append is a push of 60 to 80 ns. In most rounds the same thread \
         takes the peer's lock again, so its two threads are as fast as one. In rounds where the threads \
         alternate, the peer does 5 million appends/s, and the ratio is 1.36.",
    ),
    (
        "vector-scan-1-thread",
        "0.92 to 1.00 in a separate run on the same machine soon after: both sides read a gigabyte, one \
         after the other, and other guests of the host share the memory bandwidth.",
    ),
    (
        "vector-filter",
        "1.55 at a memory bandwidth of 20 GB/s: finding 1,000 of 100,000 rows by the columns of 100 blocks \
         and scoring them one by one takes 40 to 50 µs more than reading them, which weighs more with faster \
         memory. The search takes the same time in a separate run and in a full run; reading as many bytes \
         takes 69 to 78 µs in a separate run and 53 µs in a full run.",
    ),
    (
        "file-get",
        "0.93 to 1.03 in twelve runs on one machine; two readers need both processors, and the limit is the \
         copy from the page cache.",
    ),
    (
        "postgres-neighbors-1",
        "0.88 to 1.06 in four runs with one round trip on both sides; `redis-last-50-driver` and \
         `postgres-last-50-sqlx` show how much a round trip varies.",
    ),
    ("postgres-vector-filter", "0.95 to 1.14 in four runs with one round trip on both sides."),
    (
        "postgres-append",
        "the statement also updates the counter in the thread's row, which prevents duplicate and missing \
         numbers: one more row version and its part of the log. Run by pgbench (11 alternating rounds), a \
         handwritten statement that does only this takes 1.10 to 1.20 times as long as a plain INSERT at \
         different hours on one machine. Without the wait for the disk (9 rounds), it takes 1.25 to 1.27 \
         times as long, and Larder's statement 1.42 times. The rest is the driver. `postgres-append-counted` \
         compares with the handwritten statement.",
    ),
    (
        "postgres-last-50",
        "pgbench discards the rows that it reads. `postgres-last-50-sqlx` compares with the driver, which \
         reads the same rows without parsing them; the driver alone takes 1.0 to 1.47 times as long as \
         pgbench in five runs. Returning all bodies in one row instead of 50 is no solution: the server \
         takes four times as long to build the row.",
    ),
    (
        "postgres-append-16",
        "at most two statements run at a time, each with the appends of several sessions, and each ends in a \
         flush. Server and client share two processors: in a profile, the server has 46 % of the samples \
         with Larder and 51 % with pgbench, the client 22 % and 25 %, and 29 % and 21 % are idle.",
    ),
    (
        "redis-append",
        "an append is a script that also increments a counter, so each number is assigned once. Run by \
         redis-benchmark (21 alternating rounds), Larder's script takes 1.24 times as long as RPUSH, and a \
         script with only an RPUSH takes 1.06 times as long. Most of the difference is the script and the \
         sorted set, which lets a replacement insert messages. `redis-append-script` compares with a \
         handwritten script. Counters packed into one value take 1.5 % less time, and finding the newest \
         entry of a stream and adding to it takes 7 % less. A call makes three system calls (send, wait, \
         receive), as in redis-benchmark, and runs about 25 µs of the program's code (samples of 20,000 \
         appends), whose caches are cold after each wait for the disk.",
    ),
    (
        "redis-window-long",
        "0.97 and 1.01 in separate runs on the same machine soon after, and 0.98 in the run before; single \
         rounds vary from 0.6 to 1.8.",
    ),
    (
        "redis-last-50",
        "a call makes three system calls, as in redis-benchmark, and waits for a sleeping virtual processor \
         to wake up. With both processors kept awake by a loop of the lowest priority, the ratio is 1.05 to \
         1.13 (1.20 to 1.24 without). `redis-last-50-driver` compares with the driver alone.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_belongs_to_one_figure() {
        assert!(reason("redis-append").is_some() && reason("redis").is_none());
        for (place, (name, _)) in REASONS.iter().enumerate() {
            assert!(REASONS.iter().skip(place + 1).all(|(other, _)| other != name), "{name}");
        }
    }
}

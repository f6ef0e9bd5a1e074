//! The reasons why a figure misses its target, from profiles and other measurements.

/// Returns the known reason for a missed target.
pub(super) fn reason(figure: &str) -> Option<&'static str> {
    REASONS.iter().find(|(name, _)| *name == figure).map(|(_, reason)| *reason)
}

const REASONS: &[(&str, &str)] = &[
    (
        "memory-append",
        "a store is called through a trait object, by a boxed future, with messages in a Vec: two \
         allocations beside the \
         one that keeps the message. The record is found and locked, and its bytes are counted, by seven \
         locked \
         instructions beside two. `memory-append-call` has the same call on both sides.",
    ),
    (
        "memory-append-call",
        "2.2 to 2.4 in three runs: some 75 ns more than a boxed future and a Vec, for the record that is \
         found and \
         locked, limits that are checked and bytes that are counted.",
    ),
    (
        "memory-append-2",
        "two threads do nearly twice what one does (`memory-append-scaling`), but each append costs what \
         `memory-append` says. \
         The peer's is a push of 60 to 80 ns, and where its lock is taken again by the thread that has just \
         given it up, as \
         in most rounds, its two threads are as quick as one. Where they take turns it does 5 million a \
         second, and the ratio \
         is 1.36.",
    ),
    (
        "vector-scan-1-thread",
        "0.92 to 1.00 alone on the same machine soon after: both sides read a gigabyte, one after the other, \
         and memory \
         is shared with other guests of the host.",
    ),
    (
        "vector-filter",
        "1.55 where memory gives 20 GB a second: to find a thousand rows among a hundred thousand by the \
         columns of a hundred \
         blocks, and to score them one by one, takes 40 to 50 µs more than reading them, which is more of \
         the ratio where memory \
         is faster. The search takes as long alone and in a whole run; as many bytes are read in 69 to 78 µs \
         alone, and in 53 in a \
         whole run.",
    ),
    (
        "file-get",
        "0.93 to 1.03 in twelve runs of one machine; two readers need both processors, and the limit is the \
         copy out of the \
         system's cache.",
    ),
    (
        "postgres-neighbors-1",
        "0.88 to 1.06 in four runs, one round trip on both sides: see `redis-last-50-driver` and \
         `postgres-last-50-sqlx` for \
         what a trip varies by.",
    ),
    ("postgres-vector-filter", "0.95 to 1.14 in four runs, one round trip on both sides."),
    (
        "postgres-append",
        "the statement also counts in the thread's row, without which numbers would be given twice or left \
         out: one more \
         version of a row, and its part of the log. Run by pgbench itself (11 rounds in turns), one by hand \
         that does nothing \
         else takes 1.10 to 1.20 times as long as a lone INSERT, on different hours of one machine; without \
         a wait for the \
         disk (9 rounds), 1.25 to 1.27 times, and Larder's 1.42. The rest is the driver. \
         `postgres-append-counted` is beside \
         the one by hand.",
    ),
    (
        "postgres-last-50",
        "pgbench throws away what it reads. `postgres-last-50-sqlx` is the driver with the same rows, their \
         texts not looked \
         into; beside pgbench, the driver alone takes 1.0 to 1.47 times as long in five runs. All bodies in \
         one row, which would \
         come at once and not in the server's parts of 8 KiB, were tried: the server takes four times as \
         long to put them together.",
    ),
    (
        "postgres-append-16",
        "at most two statements are under way, each with the appends of several sessions, and each ends in a \
         flush. Server and \
         client share two processors: in a profile the server has 46 % of the samples here and 51 % beside \
         pgbench, the \
         client 22 % and 25 %, and 29 % and 21 % are idle.",
    ),
    (
        "redis-append",
        "an append is a script that counts, so that its number is given once. Run by redis-benchmark itself \
         (21 rounds in \
         turns), Larder's script takes 1.24 times as long as RPUSH, and one of a lone RPUSH 1.06: most of it \
         is the script and \
         the sorted set, in which messages that a replacement puts in place have room. `redis-append-script` \
         is beside one by \
         hand. Counters packed into one value take 1.5 % less; one that finds the newest entry of a stream \
         and adds to it takes \
         7 % less. A call is three system calls (send, wait, receive), as redis-benchmark's are, and some 25 \
         µs of the \
         program's own code (samples of 20,000 appends), which finds its caches cold after each wait for the \
         disk.",
    ),
    (
        "redis-window-long",
        "0.97 and 1.01 alone on the same machine soon after, and 0.98 in the run before: single rounds go \
         from 0.6 to \
         1.8.",
    ),
    (
        "redis-last-50",
        "a call is three system calls, as redis-benchmark's are, and waits on a virtual processor that has \
         gone to sleep: with \
         both kept awake by a loop of the lowest priority, the ratio is 1.05 to 1.13 (1.20 to 1.24 without). \
         `redis-last-50-driver` is the driver alone.",
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

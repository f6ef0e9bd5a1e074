//! A register with compare-and-set, the classic histories, and a comparison of the search with trying every
//! order.

use super::*;
use crate::concurrent::rng::Rng;

#[derive(Debug)]
struct Register;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Write(u8),
    Read,
    /// Sets the register from one value to another.
    Set(u8, u8),
}

impl Spec for Register {
    type State = u8;
    type Op = Op;
    /// The value that a read returned; 0 for a write.
    type Answer = u8;

    fn step(state: &u8, op: &Op, reply: &Reply<u8>) -> Option<u8> {
        match (*op, reply) {
            (Op::Write(value), Reply::Answered(_) | Reply::Unknown) => Some(value),
            (Op::Read, Reply::Answered(seen)) => (seen == state).then_some(*state),
            (Op::Set(from, to), Reply::Answered(_) | Reply::Unknown) => (from == *state).then_some(to),
            (Op::Set(from, _), Reply::Refused(Refusal::Conflict)) => (from != *state).then_some(*state),
            _ => None,
        }
    }

    fn changes(op: &Op, reply: &Reply<u8>) -> bool {
        *op != Op::Read && !matches!(reply, Reply::Refused(_))
    }
}

type Call = Record<Op, u8>;

fn call(client: u8, called: u64, answered: u64, op: Op, seen: u8) -> Call {
    let reply = Reply::Answered(seen);
    Record { client, handle: client % 2, called, answered: Some(answered), op, reply }
}

fn open(client: u8, called: u64, op: Op) -> Call {
    Record { client, handle: 0, called, answered: None, op, reply: Reply::Unknown }
}

fn refused(client: u8, called: u64, answered: u64, op: Op) -> Call {
    Record { reply: Reply::Refused(Refusal::Conflict), ..call(client, called, answered, op, 0) }
}

fn judged(history: &[Call]) -> Judgement<u8> {
    check::<Register>(&0, history, BUDGET)
}

fn holds(history: &[Call]) -> bool {
    match judged(history) {
        Judgement::Linearizable => true,
        Judgement::Stuck(_) => false,
        Judgement::TooMuch => panic!("the search for an order of {} calls is too long", history.len()),
    }
}

#[test]
fn calls_one_after_the_other_are_a_sequential_history() {
    use Op::*;
    assert!(holds(&[]));
    assert!(holds(&[call(0, 1, 2, Read, 0), call(1, 3, 4, Write(5), 0), call(0, 5, 6, Read, 5)]));
    assert!(!holds(&[call(0, 1, 2, Write(5), 0), call(1, 3, 4, Read, 4)]));
}

#[test]
fn a_read_concurrent_with_a_write_may_see_either_value() {
    use Op::*;
    for seen in [0, 5] {
        assert!(holds(&[call(0, 1, 10, Write(5), 0), call(1, 2, 3, Read, seen)]));
    }
    assert!(!holds(&[call(0, 1, 10, Write(5), 0), call(1, 2, 3, Read, 4)]));
}

#[test]
fn a_stale_read_is_caught() {
    use Op::*;
    let history = [call(0, 1, 2, Write(1), 0), call(0, 3, 4, Write(2), 0), call(1, 5, 6, Read, 1)];
    assert!(!holds(&history));
    // If the read had started before the second write ended, it would be correct.
    let history = [call(0, 1, 2, Write(1), 0), call(0, 3, 6, Write(2), 0), call(1, 5, 7, Read, 1)];
    assert!(holds(&history));
}

#[test]
fn a_lost_update_is_caught() {
    use Op::*;
    let history = [call(0, 1, 4, Set(0, 1), 0), call(1, 2, 3, Set(0, 2), 0)];
    assert!(!holds(&history));
    assert!(holds(&[call(0, 1, 4, Set(0, 1), 0), refused(1, 2, 3, Set(0, 2))]));
    assert!(!holds(&[refused(1, 2, 3, Set(0, 2))]));
}

#[test]
fn a_new_value_followed_by_the_old_one_is_caught() {
    use Op::*;
    let write = call(0, 1, 20, Write(5), 0);
    assert!(holds(&[write.clone(), call(1, 2, 3, Read, 0), call(2, 4, 5, Read, 5)]));
    assert!(!holds(&[write.clone(), call(1, 2, 3, Read, 5), call(2, 4, 5, Read, 0)]));
    assert!(holds(&[write, call(1, 2, 5, Read, 5), call(2, 4, 6, Read, 0)]));
}

#[test]
fn two_readers_must_agree_on_the_order_of_two_writes() {
    use Op::*;
    let writes = [call(0, 1, 20, Write(1), 0), call(1, 1, 20, Write(2), 0)];
    let reads = |first: [u8; 2], second: [u8; 2]| {
        let reads = [
            call(2, 2, 3, Read, first[0]),
            call(2, 6, 7, Read, first[1]),
            call(3, 4, 5, Read, second[0]),
            call(3, 8, 9, Read, second[1]),
        ];
        writes.iter().cloned().chain(reads).collect::<Vec<_>>()
    };
    assert!(holds(&reads([1, 2], [1, 2])));
    assert!(!holds(&reads([1, 2], [2, 1])));
}

#[test]
fn a_call_without_a_response_takes_effect_later_or_never() {
    use Op::*;
    let seen = |values: &[u8]| {
        let reads = (5..).step_by(2).zip(values).map(|(at, seen)| call(1, at, at + 1, Read, *seen));
        let history: Vec<Call> = std::iter::once(open(0, 1, Write(5))).chain(reads).collect();
        holds(&history)
    };
    assert!(seen(&[0, 0, 0]));
    assert!(seen(&[0, 0, 5]));
    assert!(seen(&[5, 5]));
    assert!(!seen(&[5, 0]));
    // The write takes effect once.
    let write = call(1, 10, 11, Write(1), 0);
    let reads = [call(1, 5, 6, Read, 5), write, call(1, 12, 13, Read, 5)];
    assert!(!holds(&[vec![open(0, 1, Write(5))], reads.to_vec()].concat()));
}

#[test]
fn a_search_over_its_budget_is_inconclusive_and_does_not_pass() {
    let history: Vec<Call> = (0..20).map(|client| call(client, 1, 100, Op::Write(client), 0)).collect();
    let read = call(30, 101, 102, Op::Read, 99);
    let history = [history, vec![read]].concat();
    assert_eq!(check::<Register>(&0, &history, 1_000), Judgement::TooMuch);
    let long: Vec<Call> =
        (0..=OPERATIONS_MAX as u64).map(|at| call(0, at * 2, at * 2 + 1, Op::Read, 0)).collect();
    assert_eq!(judged(&long), Judgement::TooMuch);
    assert!(holds(&long[..OPERATIONS_MAX]));
}

#[test]
fn a_history_is_shortened_to_its_relevant_calls() {
    use Op::*;
    let mut history = vec![call(0, 1, 2, Write(7), 0), call(1, 3, 4, Read, 7)];
    history.extend([call(0, 5, 10, Set(7, 8), 0), call(1, 6, 11, Set(7, 9), 0), call(2, 7, 8, Read, 7)]);
    history.extend([call(2, 12, 13, Read, 9), call(0, 14, 15, Write(1), 0)]);
    let shrunk = shrink::<Register>(&0, &history).unwrap();
    assert_eq!(shrunk.initial, 7);
    let ops: Vec<Op> = shrunk.history.iter().map(|record| record.op).collect();
    assert_eq!(ops, [Set(7, 8), Set(7, 9)]);
    assert_eq!(shrunk.at, 1);
    assert!(shrink::<Register>(&0, &history[..3]).is_none());
}

/// Makes a history from a sequential run: each call takes effect at one moment and spans a random time around
/// it.
fn around_a_run(rng: &mut Rng, calls: u64) -> Vec<Call> {
    let mut state = 0;
    let mut free_at = [0_u64; 5];
    let mut history = Vec::new();
    for number in 0..calls {
        let moment = 100 + number * 10;
        let free: Vec<u8> = (0..5).filter(|client| free_at[usize::from(*client)] < moment).collect();
        let Some(client) = rng.of(&free) else { continue };
        let earliest = free_at[usize::from(client)].max(moment - 60);
        let called = earliest + u64::from(rng.below(60)) % (moment - earliest);
        let answered = moment + u64::from(rng.below(60));
        free_at[usize::from(client)] = answered + 1;
        let value = rng.below(4);
        let mut record = call(client, called, answered, Op::Write(value), 0);
        match rng.below(4) {
            0 => state = value,
            1 => {
                record.op = Op::Set(value, value + 1);
                if state == value { state += 1 } else { record.reply = Reply::Refused(Refusal::Conflict) }
            }
            _ => (record.op, record.reply) = (Op::Read, Reply::Answered(state)),
        }
        if record.op != Op::Read && matches!(record.reply, Reply::Answered(_)) && rng.percent(5) {
            (record.answered, record.reply) = (None, Reply::Unknown);
            free_at[usize::from(client)] = u64::MAX;
        }
        history.push(record);
    }
    history
}

#[test]
fn histories_of_a_sequential_run_are_accepted_unless_a_read_is_wrong() {
    let mut lies: u32 = 0;
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut history = around_a_run(&mut rng, 60);
        assert!(holds(&history), "seed {seed}: {history:#?}");
        let read = history.iter_mut().rev().find(|record| record.op == Op::Read);
        if let Some(read) = read {
            read.reply = Reply::Answered(200);
            assert!(!holds(&history), "seed {seed}: {history:#?}");
            let shrunk = shrink::<Register>(&0, &history).unwrap();
            assert!(shrunk.history.len() <= history.len());
            assert_eq!(shrunk.history[shrunk.at].reply, Reply::Answered(200), "seed {seed}");
            lies += 1;
        }
    }
    assert!(lies > 300);
}

/// Tries every order, and every choice of the open calls that take effect.
fn by_trying(state: u8, history: &[Call], done: u32) -> bool {
    let left = || (0..history.len()).filter(|index| done & (1 << index) == 0);
    if left().all(|index| history[index].answered.is_none()) {
        return true;
    }
    let first_answer = left().filter_map(|index| history[index].answered).min().unwrap_or(u64::MAX);
    left().any(|index| {
        let record = &history[index];
        record.called <= first_answer
            && Register::step(&state, &record.op, &record.reply)
                .is_some_and(|state| by_trying(state, history, done | (1 << index)))
    })
}

#[test]
fn the_search_finds_the_result_of_trying_every_order() {
    let (mut right, mut wrong) = (0, 0);
    for seed in 0..6_000 {
        let mut rng = Rng::new(seed);
        let mut history = around_a_run(&mut rng, 8);
        // The results of the reads are drawn again, so that about half of the histories are wrong.
        for record in history.iter_mut().filter(|record| record.op == Op::Read) {
            if rng.percent(50) {
                record.reply = Reply::Answered(rng.below(4));
            }
        }
        let expected = by_trying(0, &history, 0);
        assert_eq!(holds(&history), expected, "seed {seed}: {history:#?}");
        if expected {
            right += 1;
            assert!(shrink::<Register>(&0, &history).is_none());
        } else {
            wrong += 1;
            let shrunk = shrink::<Register>(&0, &history).unwrap();
            assert!(!by_trying(shrunk.initial, &shrunk.history, 0), "seed {seed}");
        }
    }
    assert!(right > 1_000 && wrong > 1_000, "{right} right and {wrong} wrong");
}

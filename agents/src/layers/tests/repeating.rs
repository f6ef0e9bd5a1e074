//! Calls with a safe retry, and calls without one.

use std::time::Duration;

use larder_kernel::{
    AppendOptions, BlobBody, BlobKey, BlobPutOptions, ChatMessage, ErrorKind, IdempotencyKey,
    KeyValueStoreExt, Outcome, Revision,
};

use super::super::RetryLayer;
use super::Step::{After, Before};
use super::{Scripted, blobs, history, key_value, place, thread, value};

const LOST: super::Step = After(ErrorKind::Timeout, Outcome::Unknown);
const REFUSED: super::Step = Before(ErrorKind::Unavailable, Outcome::NotApplied);

fn quick() -> RetryLayer {
    RetryLayer::new().with_pauses(Duration::from_millis(1), Duration::from_millis(2))
}

#[tokio::test(start_paused = true)]
async fn calls_that_did_not_happen_are_repeated_and_uncertain_ones_are_not() {
    let (bucket, key) = place();
    let scripted = Scripted::new([REFUSED, REFUSED]);
    let store = key_value(&scripted, &quick());
    assert_eq!(store.set(&bucket, &key, value()).await.unwrap(), Revision::new(1));
    assert_eq!(scripted.calls().len(), 3);

    for (conditional, calls) in [(false, 1), (true, 1)] {
        let scripted = Scripted::new([LOST]);
        let store = key_value(&scripted, &quick());
        let error = match conditional {
            false => store.set(&bucket, &key, value()).await.unwrap_err(),
            true => store.create(&bucket, &key, value()).await.unwrap_err(),
        };
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::Unknown));
        assert_eq!(scripted.calls().len(), calls);
    }
    let scripted = Scripted::new([LOST]);
    assert_eq!(key_value(&scripted, &quick()).get(&bucket, &key).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn an_append_with_a_key_happens_once_and_one_without_is_not_repeated() {
    for (keyed, answer) in [(true, Some(1)), (false, None)] {
        let scripted = Scripted::new([LOST]);
        let store = history(&scripted, &quick());
        let mut options = AppendOptions::default();
        if keyed {
            options = options.with_idempotency_key(IdempotencyKey::new("k").unwrap());
        }
        let appended = store.append_many(&thread(), vec![ChatMessage::user("m")], options).await;
        assert_eq!(appended.ok().map(|appended| appended.last.get()), answer);
        assert_eq!(store.thread_info(&thread()).await.unwrap().messages, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_guarded_write_that_meets_its_own_effect_stays_unknown() {
    let (bucket, key) = place();
    let scripted = Scripted::new([Before(ErrorKind::Conflict, Outcome::NotApplied)]);
    let store = key_value(&scripted, &quick());
    // A conflict at the first attempt is returned as it is.
    let error = store.put_at(&bucket, &key, value(), Revision::new(1)).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Conflict, Outcome::NotApplied));

    let at = store.set(&bucket, &key, value()).await.unwrap();
    scripted.0.lock().unwrap().0.push_back(LOST);
    let error = store.put_at(&bucket, &key, value(), at).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::Unknown));
    assert!(store.get(&bucket, &key).await.unwrap().unwrap().revision > at);

    // If the first attempt was lost before it arrived, the second writes.
    let at = store.get(&bucket, &key).await.unwrap().unwrap().revision;
    scripted.0.lock().unwrap().0.push_back(Before(ErrorKind::Timeout, Outcome::Unknown));
    assert!(store.put_at(&bucket, &key, value(), at).await.unwrap() > at);

    // A later error does not determine the outcome of the first attempt.
    let at = store.get(&bucket, &key).await.unwrap().unwrap().revision;
    scripted.0.lock().unwrap().0.extend([LOST, REFUSED, REFUSED]);
    let error = store.put_at(&bucket, &key, value(), at).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Unknown));
}

#[tokio::test(start_paused = true)]
async fn attempts_time_and_budget_end() {
    let (bucket, key) = place();
    let endless = || Scripted::new(std::iter::repeat_n(REFUSED, 1_000));
    let scripted = endless();
    let _ = key_value(&scripted, &quick().with_attempts_max(5)).get(&bucket, &key).await.unwrap_err();
    assert_eq!(scripted.calls().len(), 5);

    let scripted = endless();
    let slow = RetryLayer::new()
        .with_attempts_max(u32::MAX)
        .with_pauses(Duration::from_secs(1), Duration::from_secs(1))
        .with_total_time_max(Duration::from_secs(10));
    let begun = tokio::time::Instant::now();
    let _ = key_value(&scripted, &slow).get(&bucket, &key).await.unwrap_err();
    assert!(begun.elapsed() <= Duration::from_secs(10) && scripted.calls().len() > 3);

    let scripted = endless();
    let store = key_value(&scripted, &quick().with_attempts_max(u32::MAX));
    let _ = store.get(&bucket, &key).await.unwrap_err();
    assert_eq!(scripted.calls().len(), 51);
    let _ = store.get(&bucket, &key).await.unwrap_err();
    assert_eq!(scripted.calls().len(), 52, "nothing is left of the budget");
}

#[tokio::test(start_paused = true)]
async fn a_streamed_body_is_sent_again_only_while_it_is_whole() {
    let key = BlobKey::new("k").unwrap();
    let body = || BlobBody::stream(futures_util::stream::iter([Ok(value()), Ok(value())]));
    let scripted = Scripted::new([REFUSED]);
    let store = blobs(&scripted, &quick());
    assert_eq!(store.put(&key, body(), BlobPutOptions::default()).await.unwrap().size, 10);
    let scripted = Scripted::new([After(ErrorKind::Unavailable, Outcome::NotApplied)]);
    let store = blobs(&scripted, &quick());
    assert!(store.put(&key, body(), BlobPutOptions::default()).await.is_err());
    assert_eq!(scripted.calls().len(), 1);
}

//! Invalid calls that concern several keys.

use bytes::Bytes;
use larder_kernel::limits::{BATCH_KEYS_MAX, BATCH_VALUES_BYTES_MAX, VALUE_BYTES_MAX};
use larder_kernel::{
    BucketName, Key, KeyValueCondition, KeyValuePutOptions, KeyValueQuery, KeyValueWrite, PageRequest,
    Result, Revision,
};

use super::super::inputs::{Rule, TWICE, at_least, at_most, durations, limits, prefixes};
use super::super::{Refusal, Table, table};

const BUCKETS: [&str; 2] = ["kept-bucket", "absent"];
const NUMBERS: [(&str, Rule, usize); 3] = [
    ("nothing", at_least(1), 0),
    ("one too many", at_most(BATCH_KEYS_MAX), BATCH_KEYS_MAX + 1),
    ("twice too many", at_most(BATCH_KEYS_MAX), BATCH_KEYS_MAX * 2),
];
/// The position of the invalid write among valid ones.
const PLACES: [(&str, usize); 2] = [("first", 0), ("last", 2)];

pub(super) fn tables() -> Vec<Table> {
    vec![
        table("number_of_keys", keys()),
        table("number_of_writes", numbers()),
        table("key_that_is_written_twice", twice()),
        table("writes_that_are_too_large", sizes()),
        table("written_value_that_is_too_large", values()),
        table("written_time_to_live", lives()),
        table("prefix_of_a_deletion", deleted()),
        table("prefix_of_entries", listed()),
        table("page_of_entries_that_is_too_long", pages()),
    ]
}

fn put(key: &str, value: impl Into<Bytes>) -> Result<KeyValueWrite> {
    Ok(KeyValueWrite::put(Key::new(key)?, value, KeyValuePutOptions::default()))
}

fn keys() -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (what, most, count) in &NUMBERS[1..] {
        for bucket in BUCKETS {
            let (what, count) = (format!("{what} in {bucket}"), *count);
            rows.push(Refusal::new("key_value.get_many", what, "keys", *most, move |stores| {
                Box::pin(async move {
                    let keys: Vec<Key> = (0..count)
                        .map(|number| Key::new(format!("kept/key-{number}")))
                        .collect::<Result<_>>()?;
                    stores.key_value()?.get_many(&BucketName::new(bucket)?, &keys).await.map(drop)
                })
            }));
        }
    }
    rows
}

/// A write of these puts and deletions, in each bucket.
fn write(
    what: &str,
    field: &'static str,
    rule: Rule,
    make: impl Fn() -> Result<Vec<KeyValueWrite>> + Clone + Send + Sync + 'static,
) -> Vec<Refusal> {
    let row = |bucket: &'static str| {
        let make = make.clone();
        Refusal::new("key_value.write", format!("{what} in {bucket}"), field, rule, move |stores| {
            let writes = make();
            Box::pin(
                async move { stores.key_value()?.write(&BucketName::new(bucket)?, writes?).await.map(drop) },
            )
        })
    };
    BUCKETS.into_iter().map(row).collect()
}

fn numbers() -> Vec<Refusal> {
    let of = |(what, rule, count): (&str, Rule, usize)| {
        write(what, "writes", rule, move || {
            (0..count).map(|number| put(&format!("kept/key-{number}"), "lost")).collect()
        })
    };
    NUMBERS.into_iter().flat_map(of).collect()
}

fn twice() -> Vec<Refusal> {
    let delete = || -> Result<KeyValueWrite> { Ok(KeyValueWrite::delete(Key::new("kept/key-0")?, None)) };
    [
        write("two puts", "writes.key", TWICE, || {
            Ok(vec![put("kept/key-0", "lost")?, put("new", "lost")?, put("kept/key-0", "lost")?])
        }),
        write("a put and a deletion", "writes.key", TWICE, move || {
            Ok(vec![put("kept/key-0", "lost")?, delete()?])
        }),
        write("two deletions", "writes.key", TWICE, move || Ok(vec![delete()?, delete()?])),
    ]
    .concat()
}

fn sizes() -> Vec<Refusal> {
    let value = Bytes::from(vec![b'x'; VALUE_BYTES_MAX]);
    let most = at_most(BATCH_VALUES_BYTES_MAX);
    let mut rows = Vec::new();
    for (what, count, last) in [("a byte of a key too many", 4, ""), ("five of the largest values", 5, "x")] {
        let value = value.clone();
        rows.extend(write(what, "writes", most, move || {
            let values = (0..count).map(|number| put(&number.to_string(), value.clone()));
            values.chain([put("kept/key-0", last)]).collect()
        }));
    }
    rows
}

/// An invalid put among valid writes, under conditions that hold and that do not: invalid input takes
/// precedence over them.
fn invalid(
    what: &str,
    field: &'static str,
    rule: Rule,
    value: &Bytes,
    options: KeyValuePutOptions,
) -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (place, at) in PLACES {
        for condition in [KeyValueCondition::None, KeyValueCondition::AtRevision(Revision::new(u64::MAX))] {
            let (value, what) = (value.clone(), format!("{what}, {place}, {condition:?}"));
            rows.extend(write(&what, field, rule, move || {
                let valid = KeyValuePutOptions::default().with_condition(condition);
                let mut writes = vec![
                    KeyValueWrite::put(Key::new("kept/key-0")?, "lost", valid),
                    KeyValueWrite::delete(Key::new("kept/key-1")?, None),
                ];
                writes.insert(at, KeyValueWrite::put(Key::new("new")?, value.clone(), options));
                Ok(writes)
            }));
        }
    }
    rows
}

fn values() -> Vec<Refusal> {
    let value = Bytes::from(vec![b'x'; VALUE_BYTES_MAX + 1]);
    invalid("a byte too many", "value", at_most(VALUE_BYTES_MAX), &value, KeyValuePutOptions::default())
}

fn lives() -> Vec<Refusal> {
    let value = Bytes::from_static(b"lost");
    let row = |(what, rule, ttl)| {
        invalid(what, "ttl", rule, &value, KeyValuePutOptions::default().with_ttl(Some(ttl)))
    };
    durations().into_iter().flat_map(row).collect::<Vec<_>>()
}

fn deleted() -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (what, rule, prefix) in prefixes() {
        for bucket in BUCKETS {
            let what = format!("{what} in {bucket}");
            rows.push(Refusal::new("key_value.delete_prefix", what, "prefix", rule, move |stores| {
                Box::pin(async move {
                    stores.key_value()?.delete_prefix(&BucketName::new(bucket)?, prefix).await.map(drop)
                })
            }));
        }
    }
    rows
}

fn entries(
    what: &str,
    field: &'static str,
    rule: Rule,
    (bucket, prefix): (&'static str, &'static str),
    limit: usize,
) -> [Refusal; 2] {
    [false, true].map(|wide| {
        let what = format!("{what} in {bucket}, with every option: {wide}");
        Refusal::new("key_value.list_entries", what, field, rule, move |stores| {
            Box::pin(async move {
                let mut query = KeyValueQuery::prefix(prefix);
                if wide {
                    query = query.with_from(Key::new("a")?).with_to(Key::new("z")?);
                    query = query.descending().with_values();
                }
                let page = PageRequest::first(limit);
                stores.key_value()?.list_entries(&BucketName::new(bucket)?, &query, page).await.map(drop)
            })
        })
    })
}

fn listed() -> Vec<Refusal> {
    let row = |(what, rule, prefix): (&str, Rule, &'static str)| {
        BUCKETS.map(|bucket| entries(what, "prefix", rule, (bucket, prefix), 1)).concat()
    };
    prefixes().flat_map(row).collect()
}

fn pages() -> Vec<Refusal> {
    let row = |(what, rule, count): (&str, Rule, usize)| {
        BUCKETS.map(|bucket| entries(what, "limit", rule, (bucket, "kept"), count)).concat()
    };
    limits().into_iter().flat_map(row).collect()
}

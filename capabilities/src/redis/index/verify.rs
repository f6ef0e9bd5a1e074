//! The verification of an index of names.

use std::collections::BTreeSet;

use larder_kernel::Result;

use crate::redis::reader::{Place, Reader, text_of};
use crate::verify::FaultKind::{Foreign, Index};

/// Compares the names with the fields that register them.
pub(in super::super) async fn check(reader: &Reader<'_>, place: &Place, of_threads: bool) -> Result<()> {
    let (names, registered, other) =
        if of_threads { ("listed", "tokens", "count") } else { ("names", "epochs", "epoch") };
    for part in &place.parts {
        let known = [names, registered, other].iter().any(|known| part == known.as_bytes());
        let key = text_of(&place.key(part));
        reader.expect(known, Foreign, &format!("key {key}"), "the index has no such part");
    }
    let registered: BTreeSet<Vec<u8>> = reader.fields(&place.key(registered)).await?.into_iter().collect();
    let mut from = 0;
    loop {
        let page = reader.page(&place.key(names), from).await?;
        for (name, _) in &page {
            reader.faults.read(1);
            let shown = text_of(name).replace('\0', "/");
            let named = format!("{shown} in the {}", place.name);
            reader.expect(registered.contains(name), Index, &named, "it is listed and not registered");
        }
        from += i64::try_from(page.len()).unwrap_or(i64::MAX);
        if page.is_empty() {
            return Ok(());
        }
    }
}

//! Cases of [`BlobStore`](larder_kernel::BlobStore).

mod conditions;
mod copy_delete;
pub(crate) mod dump;
mod fields;
mod hostile;
mod list;
mod long_keys;
pub(crate) mod many;
mod one_version;
mod places;
mod presign;
mod read;
mod rename;
mod sizes;
mod versions;
mod write;

use larder_kernel::{BlobKey, Capability};

use crate::case::{Case, CaseResult, case};

/// Returns all cases of the contract.
#[must_use]
pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        case!(Blobs, "BLOB-001", write::bytes_of_many_sizes_read_back),
        case!(Blobs, "BLOB-002", write::content_type_and_metadata_read_back),
        case!(Blobs, "BLOB-003", write::overwriting_replaces_everything),
        case!(Blobs, "BLOB-004", write::readers_never_see_a_mixture),
        case!(Blobs, "BLOB-005", write::a_stream_is_written_as_the_concatenation_of_its_chunks),
        case!(Blobs, "BLOB-006", write::a_failing_stream_leaves_the_store_unchanged),
        case!(Blobs, "BLOB-007", conditions::absent_refuses_an_existing_blob)
            .needing(Capability::BlobCreateOnly),
        case!(Blobs, "BLOB-008", conditions::one_of_concurrent_creations_succeeds)
            .needing(Capability::BlobCreateOnly),
        case!(Blobs, "BLOB-009", conditions::matches_replaces_the_matching_version)
            .needing(Capability::BlobIfMatch),
        case!(Blobs, "BLOB-010", conditions::matches_refuses_another_version_and_a_missing_blob)
            .needing(Capability::BlobIfMatch),
        case!(Blobs, "BLOB-011", conditions::one_of_concurrent_replacements_succeeds)
            .needing(Capability::BlobIfMatch),
        case!(Blobs, "BLOB-010", conditions::a_replacement_during_a_deletion_restores_nothing)
            .needing(Capability::BlobIfMatch),
        case!(Blobs, "BLOB-012", write::the_etag_changes_with_the_bytes),
        case!(Blobs, "BLOB-013", conditions::an_undeclared_condition_is_unsupported),
        case!(Blobs, "BLOB-014", write::a_key_may_be_a_prefix_of_another),
        case!(Blobs, "BLOB-015", write::concurrent_writes_leave_one_complete_blob),
        case!(Blobs, "BLOB-020", read::reading_a_missing_blob_is_not_found),
        case!(Blobs, "BLOB-021", read::a_range_returns_exactly_its_bytes),
        case!(Blobs, "BLOB-022", read::a_range_past_the_end_is_refused),
        case!(Blobs, "BLOB-023", read::a_suffix_returns_the_last_bytes),
        case!(Blobs, "BLOB-024", read::get_returns_size_and_range),
        case!(Blobs, "BLOB-025", read::a_read_survives_an_overwrite_and_a_deletion),
        case!(Blobs, "BLOB-026", read::head_equals_the_result_of_the_write),
        case!(Blobs, "BLOB-027", read::head_of_a_missing_blob_is_not_found),
        case!(Blobs, "BLOB-030", list::a_prefix_selects_by_bytes),
        case!(Blobs, "BLOB-031", list::keys_are_listed_in_byte_order),
        case!(Blobs, "BLOB-032", list::after_skips_up_to_the_key),
        case!(Blobs, "BLOB-033", list::a_listing_misses_no_blob_that_stays),
        case!(Blobs, "BLOB-034", list::only_finished_blobs_are_listed),
        case!(Blobs, "BLOB-035", list::items_have_size_and_etag),
        case!(Blobs, "BLOB-036", copy_delete::a_copy_is_equal_and_independent),
        case!(Blobs, "BLOB-037", copy_delete::copying_a_missing_blob_is_not_found),
        case!(Blobs, "BLOB-038", copy_delete::a_copy_replaces_its_target_completely),
        case!(Blobs, "BLOB-039", copy_delete::copying_onto_itself_changes_nothing),
        case!(Blobs, "BLOB-040", copy_delete::a_deleted_blob_is_not_found),
        case!(Blobs, "BLOB-041", copy_delete::deleting_a_missing_blob_returns_false),
        case!(Blobs, "BLOB-042", copy_delete::deleting_keeps_longer_keys),
        case!(Blobs, "BLOB-043", copy_delete::concurrent_deletions_all_succeed),
        case!(Blobs, "BLOB-051", presign::an_undeclared_method_is_unsupported),
    ];
    cases.extend(presign::cases());
    cases.extend(fields::cases());
    cases.extend(places::cases());
    cases.extend(sizes::cases());
    cases.extend(hostile::cases());
    cases.extend(long_keys::cases());
    cases.extend(rename::cases());
    cases.extend(versions::cases());
    cases.extend(one_version::cases());
    cases
}

pub(crate) fn key(text: &str) -> CaseResult<BlobKey> {
    Ok(BlobKey::new(text)?)
}

/// Returns incompressible bytes that differ at each position, so that a swapped or repeated part is detected.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

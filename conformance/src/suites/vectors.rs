//! Cases of the contract `vectors`.

mod batch;
pub(crate) mod dump;
mod embedder;
mod fields;
mod filter;
pub(crate) mod filter_table;
mod hostile;
mod listing;
pub(crate) mod many;
mod matching;
mod metadata;
mod places;
mod put;
mod search;
pub(crate) mod support;

use crate::case::{Case, Level, case};

/// Returns all cases of the contract.
#[must_use]
pub fn cases() -> Vec<Case> {
    let mut all = puts();
    all.extend(updates());
    all.extend(searches());
    all.extend(listings());
    all.extend(places::cases());
    all.extend(hostile_names());
    all
}

fn puts() -> Vec<Case> {
    vec![
        case!(Vectors, "VEC-001", put::documents_read_back_equal),
        case!(Vectors, "VEC-001", put::documents_at_their_limits_read_back_equal),
        case!(Vectors, "VEC-001", fields::every_field_reads_back_by_every_method),
        case!(Vectors, "VEC-030", fields::hits_carry_every_field),
        case!(Vectors, "VEC-002", put::if_absent_keeps_existing_documents),
        case!(Vectors, "VEC-003", put::upsert_replaces_completely),
        case!(Vectors, "VEC-004", put::a_full_batch_of_documents_is_stored_completely),
        case!(Vectors, "VEC-004", put::batches_are_visible_completely_or_not_at_all),
        case!(Vectors, "VEC-005", put::another_dimension_is_refused),
        case!(Vectors, "VEC-006", put::mixed_dimensions_and_repeated_ids_are_refused),
        case!(Vectors, "VEC-007", embedder::missing_embeddings_are_computed),
        case!(Vectors, "VEC-007", embedder::computed_embeddings_have_the_dimension_of_the_collection),
        case!(Vectors, "VEC-007", embedder::an_embedder_error_writes_nothing),
        case!(Vectors, "VEC-008", embedder::without_an_embedder_embeddings_must_be_given),
        case!(Vectors, "VEC-009", put::collections_separate_ids_and_dimensions),
        case!(Vectors, "VEC-010", put::concurrent_puts_if_absent_write_an_id_once),
        case!(Vectors, "VEC-011", put::concurrent_first_puts_set_one_dimension),
        case!(Vectors, "VEC-012", put::one_to_sixteen_thousand_dimensions_are_accepted),
        case!(Vectors, "VEC-013", listing::reads_return_documents_in_the_order_of_ids),
    ]
}

fn updates() -> Vec<Case> {
    vec![
        case!(Vectors, "VEC-043", metadata::replacing_metadata_leaves_text_and_embedding),
        case!(Vectors, "VEC-043", metadata::updated_metadata_reads_back_equal),
        case!(Vectors, "VEC-044", metadata::merging_metadata_keeps_other_keys),
        case!(Vectors, "VEC-045", metadata::missing_documents_are_reported_and_not_created),
        case!(Vectors, "VEC-046", metadata::updates_are_visible_completely_or_not_at_all),
        case!(Vectors, "VEC-047", metadata::a_merge_over_the_limit_changes_nothing),
        case!(Vectors, "VEC-048", metadata::concurrent_merges_lose_no_key),
        case!(Vectors, "VEC-049", metadata::filters_see_updated_metadata),
    ]
}

fn searches() -> Vec<Case> {
    vec![
        case!(Vectors, "VEC-020", search::hits_are_ordered_by_cosine),
        case!(Vectors, "VEC-020", search::scores_do_not_depend_on_lengths),
        case!(Vectors, "VEC-021", search::scores_stay_between_minus_one_and_one),
        case!(Vectors, "VEC-022", search::equal_embeddings_are_ordered_by_id),
        case!(Vectors, "VEC-023", search::a_limit_is_filled_in_a_large_collection),
        case!(Vectors, "VEC-023", search::a_request_without_a_limit_returns_five_hits),
        case!(Vectors, "VEC-024", search::a_filter_applies_before_the_limit),
        case!(Vectors, "VEC-025", search::a_floor_excludes_lower_scores),
        case!(Vectors, "VEC-025", search::floors_limits_and_filters_combine),
        case!(Vectors, "VEC-026", search::a_limit_of_zero_returns_nothing),
        case!(Vectors, "VEC-027", search::a_missing_collection_has_no_hits),
        case!(Vectors, "VEC-028", search::a_query_of_another_dimension_is_refused),
        case!(Vectors, "VEC-029", filter::filters_distinguish_types),
        case!(Vectors, "VEC-029", filter::filters_order_numbers_and_strings_only),
        case!(Vectors, "VEC-029", filter::filters_take_paths_literally),
        case!(Vectors, "VEC-029", filter::filters_combine),
        case!(Vectors, "VEC-029", filter::filters_at_their_limits_work),
        case!(Vectors, "VEC-029", filter::filters_see_replaced_metadata),
        case!(Vectors, "VEC-050", filter::filters_examine_the_elements_of_arrays),
        case!(Vectors, "VEC-030", search::hits_carry_text_and_metadata),
        case!(Vectors, "VEC-031", search::searches_follow_replacements_and_deletions),
        case!(Vectors, "VEC-032", batch::a_batch_returns_the_results_of_single_searches),
        case!(Vectors, "VEC-033", batch::one_invalid_request_fails_the_batch),
    ]
}

fn listings() -> Vec<Case> {
    vec![
        case!(Vectors, "VEC-034", listing::deletions_count_each_document_once),
        case!(Vectors, "VEC-035", listing::deleting_missing_documents_succeeds),
        case!(Vectors, "VEC-036", filter::exactly_the_matching_documents_are_deleted),
        case!(Vectors, "VEC-037", filter::counts_cover_matching_documents),
        case!(Vectors, "VEC-038", listing::pages_of_any_size_return_each_document_once),
        case!(Vectors, "VEC-038", listing::paging_continues_during_changes),
        case!(Vectors, "VEC-051", matching::a_listing_follows_the_table_of_filters),
        case!(Vectors, "VEC-051", matching::listed_documents_have_text_and_metadata),
        case!(Vectors, "VEC-052", matching::pages_of_any_size_return_each_match_once),
        case!(Vectors, "VEC-052", matching::paging_through_matches_continues_during_changes),
        case!(Vectors, "VEC-039", listing::collections_are_listed_with_dimension_and_count),
        case!(Vectors, "VEC-039", listing::the_default_collection_is_like_any_other),
        case!(Vectors, "VEC-039", listing::emptied_collections_remain_listed),
        case!(Vectors, "VEC-040", listing::a_dropped_collection_is_empty_and_others_remain),
        case!(Vectors, "VEC-041", listing::only_a_drop_releases_the_dimension),
        case!(Vectors, "VEC-042", listing::dropping_a_missing_collection_returns_false),
    ]
}

fn hostile_names() -> Vec<Case> {
    vec![
        case!(Vectors, "STORE-003", hostile::document_ids_are_distinct).at_level(Level::Hostile),
        case!(Vectors, "STORE-003", hostile::collection_names_are_distinct).at_level(Level::Hostile),
        case!(Vectors, "STORE-003", hostile::collection_and_document_do_not_merge).at_level(Level::Hostile),
        case!(Vectors, "STORE-003", hostile::metadata_keys_are_distinct).at_level(Level::Hostile),
    ]
}

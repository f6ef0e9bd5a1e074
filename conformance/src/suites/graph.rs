//! Cases of the contract `graph`.

mod cypher;
mod delete;
pub(crate) mod dump;
mod entities;
mod fields;
mod find;
mod hostile;
pub(crate) mod many;
mod model;
mod places;
mod relationship_revisions;
mod relationships;
mod revisions;
mod support;
mod walk;

use larder_kernel::Capability;

use crate::case::{Case, Level, case};

/// Returns all cases of the contract.
#[must_use]
pub fn cases() -> Vec<Case> {
    let mut all = writes();
    all.extend(conditional_writes());
    all.extend(walks());
    all.extend(changes_and_finds());
    all.extend(cypher_queries());
    all.extend(places::cases());
    all.extend(hostile_names());
    all
}

fn writes() -> Vec<Case> {
    vec![
        case!(Graph, "GRAPH-001", fields::every_field_of_entities_reads_back),
        case!(Graph, "GRAPH-001", entities::entities_read_back_equal),
        case!(Graph, "GRAPH-002", entities::replaced_entities_keep_their_relationships),
        case!(Graph, "GRAPH-003", entities::upserts_count_created_and_replaced),
        case!(Graph, "GRAPH-004", entities::a_full_batch_is_stored_completely),
        case!(Graph, "GRAPH-004", entities::batches_are_visible_completely_or_not_at_all),
        case!(Graph, "GRAPH-004", entities::a_refused_batch_stores_nothing),
        case!(Graph, "GRAPH-005", fields::every_field_of_relationships_reads_back),
        case!(Graph, "GRAPH-005", relationships::relationships_read_back_equal),
        case!(Graph, "GRAPH-006", relationships::a_missing_source_or_target_is_not_found),
        case!(Graph, "GRAPH-007", relationships::relationships_are_replaced_completely),
        case!(Graph, "GRAPH-008", relationships::an_entity_may_relate_to_itself),
        case!(Graph, "GRAPH-009", relationships::two_entities_may_have_many_relationships),
        case!(Graph, "GRAPH-010", relationships::relationships_never_lack_an_entity),
        case!(Graph, "GRAPH-010", relationships::relationships_do_not_outlive_an_entity),
        case!(Graph, "GRAPH-011", entities::reads_return_entities_in_the_order_of_ids),
        case!(Graph, "GRAPH-012", relationships::reads_return_relationships_in_the_order_of_ids),
    ]
}

fn conditional_writes() -> Vec<Case> {
    vec![
        case!(Graph, "GRAPH-045", revisions::each_write_raises_the_revision),
        case!(Graph, "GRAPH-046", revisions::creating_an_existing_entity_conflicts),
        case!(Graph, "GRAPH-047", revisions::a_write_at_another_revision_conflicts),
        case!(Graph, "GRAPH-048", revisions::a_merge_keeps_the_properties_that_it_does_not_name),
        case!(Graph, "GRAPH-049", revisions::a_failed_condition_stores_nothing_of_its_batch),
        case!(Graph, "GRAPH-050", revisions::one_of_concurrent_writes_at_a_revision_succeeds),
        case!(Graph, "GRAPH-050", revisions::one_of_concurrent_creations_succeeds),
        case!(Graph, "GRAPH-050", revisions::lists_kept_at_the_revision_lose_no_item),
        case!(Graph, "GRAPH-051", revisions::concurrent_merges_lose_no_property),
        case!(Graph, "GRAPH-052", revisions::a_merge_over_the_limit_is_refused),
        case!(Graph, "GRAPH-053", revisions::stored_entities_are_read_in_the_order_of_ids),
        case!(Graph, "GRAPH-054", revisions::a_new_entity_has_a_revision_that_the_id_never_had),
        case!(Graph, "GRAPH-055", revisions::relationships_do_not_change_revisions),
        case!(Graph, "GRAPH-056", relationship_revisions::each_write_of_a_relationship_raises_its_revision),
        case!(Graph, "GRAPH-057", relationship_revisions::creating_an_existing_relationship_conflicts),
        case!(Graph, "GRAPH-058", relationship_revisions::a_relationship_at_another_revision_conflicts),
        case!(
            Graph,
            "GRAPH-059",
            relationship_revisions::a_merge_replaces_type_and_ends_and_keeps_other_properties
        ),
        case!(Graph, "GRAPH-060", relationship_revisions::a_failed_write_stores_nothing_of_its_batch),
        case!(Graph, "GRAPH-061", relationship_revisions::one_of_concurrent_writes_succeeds),
        case!(
            Graph,
            "GRAPH-062",
            relationship_revisions::concurrent_merges_of_a_relationship_lose_no_property
        ),
        case!(
            Graph,
            "GRAPH-063",
            relationship_revisions::a_merge_of_a_relationship_over_the_limit_is_refused
        ),
        case!(Graph, "GRAPH-064", relationship_revisions::stored_relationships_are_read_in_the_order_of_ids),
        case!(
            Graph,
            "GRAPH-065",
            relationship_revisions::a_new_relationship_has_a_revision_that_the_id_never_had
        ),
    ]
}

fn walks() -> Vec<Case> {
    vec![
        case!(Graph, "GRAPH-020", walk::traversals_follow_both_directions_by_default),
        case!(Graph, "GRAPH-024", fields::walks_return_every_field),
        case!(Graph, "GRAPH-021", walk::each_entity_within_the_depth_is_returned_once),
        case!(Graph, "GRAPH-021", walk::random_traversals_agree_with_the_model),
        case!(Graph, "GRAPH-022", walk::depth_zero_returns_the_entity_alone),
        case!(Graph, "GRAPH-023", walk::only_the_given_types_are_followed),
        case!(Graph, "GRAPH-023", walk::random_typed_traversals_agree_with_the_model),
        case!(Graph, "GRAPH-024", walk::every_followed_relationship_is_returned),
        case!(Graph, "GRAPH-025", walk::returned_relationships_have_both_entities_in_the_result),
        case!(Graph, "GRAPH-026", walk::traversals_through_cycles_terminate),
        case!(Graph, "GRAPH-027", walk::a_limit_returns_the_nearest_entities_by_id),
        case!(Graph, "GRAPH-027", walk::random_limited_traversals_agree_with_the_model),
        case!(Graph, "GRAPH-028", walk::a_missing_start_entity_returns_nothing),
        case!(Graph, "GRAPH-029", walk::outgoing_and_incoming_follow_the_direction),
        case!(Graph, "GRAPH-030", walk::a_limit_of_zero_returns_nothing),
    ]
}

fn changes_and_finds() -> Vec<Case> {
    vec![
        case!(Graph, "GRAPH-031", delete::an_entity_is_deleted_with_its_relationships),
        case!(Graph, "GRAPH-032", delete::neighbors_of_a_deleted_entity_remain),
        case!(Graph, "GRAPH-033", delete::deleting_a_missing_entity_reports_it),
        case!(Graph, "GRAPH-034", delete::a_deleted_relationship_leaves_its_entities),
        case!(Graph, "GRAPH-035", find::entities_are_found_by_type_and_properties),
        case!(Graph, "GRAPH-035", find::filters_distinguish_types),
        case!(Graph, "GRAPH-035", find::filters_order_numbers_and_strings_only),
        case!(Graph, "GRAPH-035", find::filters_take_paths_literally),
        case!(Graph, "GRAPH-035", find::filters_examine_the_elements_of_arrays),
        case!(Graph, "GRAPH-035", find::filters_combine),
        case!(Graph, "GRAPH-035", find::filters_at_their_limits_work),
        case!(Graph, "GRAPH-036", find::paging_returns_each_entity_once),
        case!(Graph, "GRAPH-036", find::entity_pages_continue_during_changes),
        case!(Graph, "GRAPH-037", find::relationships_satisfy_every_part_given),
        case!(Graph, "GRAPH-037", find::relationship_filters_follow_the_same_table),
        case!(Graph, "GRAPH-038", find::paging_returns_each_relationship_once),
        case!(Graph, "GRAPH-039", delete::counts_equal_the_readable_items),
    ]
}

fn cypher_queries() -> Vec<Case> {
    vec![
        case!(Graph, "GRAPH-040", cypher::cypher_exists_exactly_if_declared),
        case!(Graph, "GRAPH-041", cypher::queries_see_the_graph_of_their_namespace)
            .needing(Capability::Cypher),
        case!(Graph, "GRAPH-041", cypher::parameters_are_data).needing(Capability::Cypher),
        case!(Graph, "GRAPH-042", cypher::patterns_match_ids_types_and_properties)
            .needing(Capability::Cypher),
        case!(Graph, "GRAPH-043", cypher::cypher_rows_are_entities_and_relationships)
            .needing(Capability::Cypher),
        case!(Graph, "GRAPH-044", cypher::queries_that_would_write_are_refused).needing(Capability::Cypher),
        case!(Graph, "STORE-010", cypher::refuses_cypher_that_does_not_parse)
            .needing(Capability::Cypher)
            .at_level(Level::Hostile),
    ]
}

fn hostile_names() -> Vec<Case> {
    let all = vec![
        case!(Graph, "STORE-003", hostile::entity_ids_are_distinct),
        case!(Graph, "STORE-003", hostile::relationship_ids_are_distinct),
        case!(Graph, "STORE-003", hostile::types_are_distinct),
        case!(Graph, "STORE-003", hostile::source_and_target_do_not_merge),
        case!(Graph, "STORE-003", hostile::type_and_end_do_not_merge),
        case!(Graph, "STORE-003", hostile::an_entity_and_a_relationship_share_an_id),
        case!(Graph, "STORE-003", hostile::property_keys_are_distinct),
        case!(Graph, "STORE-003", hostile::property_texts_are_data),
    ];
    all.into_iter().map(|case| case.at_level(Level::Hostile)).collect()
}

//! Query plans of reads by author.

use super::*;

#[tokio::test]
async fn one_author_is_read_along_the_index_and_others_back_from_the_newest() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let plans = |sql: &Connection| {
        let plan = super::super::super::tests::plan;
        Ok([plan(sql, read::MATCHING_ONE)?, plan(sql, read::MATCHING)?])
    };
    let [one, any] = store.engine.read("test.plan", plans).await.unwrap();
    assert!(one.contains("messages_by_author (thread=? AND author=? AND seq<?)"), "{one}");
    assert!(any.contains("sqlite_autoindex_messages_1 (thread=? AND seq<?)"), "{any}");
    assert!(!one.contains("TEMP B-TREE") && !any.contains("TEMP B-TREE"), "{one}; {any}");
}

//! The optional fields of requests: a declared one has its effect, another one is refused.

use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{
    AgentId, AgentRole, AppendOptions, BlobBody, BlobGetOptions, BlobKey, BlobPutOptions, BlobStore,
    BlobStoreExt, BoardId, BucketName, ByteRange, Capability, ChatMessage, CollectionName, Contract,
    Document, DocumentId, Embedding, Entity, EntityId, EntityQuery, EntityType, EntityWrite, Error,
    ErrorKind, FencingToken, Filter, GraphStore, HistoryProvider, IdempotencyKey, Key, KeyValueCondition,
    KeyValuePutOptions, KeyValueQuery, KeyValueStore, KeyValueStoreExt, MessageFilter, MessageUpdate,
    Metadata, NeighborQuery, NewBoard, NewTask, PageRequest, PresignRequest, PutMode, Relationship,
    RelationshipId, RelationshipQuery, RelationshipType, RelationshipWrite, Removal, RequestOption, Revision,
    SearchRequest, Seq, TaskId, TaskQuery, TaskStatus, TaskStore, Thread, Transition, Ttl, VectorStore,
    WorkerId,
};

use super::probe::{dump, store};
use crate::case::{CaseResult, Failure};
use crate::context::Context;
use crate::expect;
use crate::harness::{OpenOptions, StoreSet};

/// The waits for a time to live of 1 ms, and the length of each.
const WAITS: u32 = 200;
const WAIT: Duration = Duration::from_millis(50);

pub(super) async fn have_their_effect_or_are_refused(context: Context, contract: Contract) -> CaseResult {
    let stores = context.open().await?;
    let other = context.open_with(&context.namespace, &OpenOptions::default().with_handle(1)).await?;
    let declared = store(&stores, contract)?.options();
    expect::equal(
        "the options that the other handle declares",
        &store(&other, contract)?.options(),
        &declared,
    )?;
    prepare(&stores, contract).await?;
    let signs = store(&stores, contract)?.capabilities().has(Capability::BlobPresignPut);
    for option in RequestOption::ALL.iter().copied().filter(|option| option.contract() == contract) {
        if option == RequestOption::PresignContentType && !signs {
            continue;
        }
        let before = dump(&stores, contract).await?;
        let called = call(&stores, option).await;
        match (declared.has(option), called) {
            (true, Ok(true)) => {}
            (true, Ok(false)) => {
                return Err(expect::broken(
                    format!("{option}, which is declared, to have its effect"),
                    "none",
                ));
            }
            (true, Err(Failure::Undeclared(_))) => {
                return Err(expect::broken(
                    format!("{option}, which is declared, to be honored"),
                    "a refusal",
                ));
            }
            (false, Err(Failure::Undeclared(refused))) => {
                expect::equal("the option refused", &refused, &option)?;
                expect::equal("the data after the refusal", &dump(&stores, contract).await?, &before)?;
            }
            (false, Ok(_)) => {
                return Err(expect::broken(
                    format!("{option}, which is not declared, to be refused"),
                    "success",
                ));
            }
            (_, Err(failure)) => return Err(failure),
        }
    }
    Ok(())
}

/// Writes the data that the calls meet, without any option.
async fn prepare(stores: &StoreSet, contract: Contract) -> CaseResult {
    match contract {
        Contract::History => {
            let messages = vec![
                ChatMessage::assistant("one").with_author(AgentId::new("first")?, None),
                ChatMessage::assistant("two")
                    .with_author(AgentId::new("second")?, Some(AgentRole::new("critic")?)),
            ];
            let history = &*stores.history()?;
            history.append_many(&thread("said")?, messages, AppendOptions::default()).await?;
        }
        Contract::Vectors => {
            let document = |id: &str, embedding: [f32; 2], number: i64| {
                let document =
                    Document::new(DocumentId::new(id)?, id).with_embedding(Embedding::try_from(embedding)?);
                Ok(document.with_metadata(Metadata::new().with("n", number)))
            };
            let documents: Result<_, Error> =
                [document("near", [1.0, 0.0], 1), document("far", [0.0, 1.0], 2)].into_iter().collect();
            stores.vectors()?.put(&CollectionName::new("c")?, documents?, PutMode::Upsert).await?;
        }
        Contract::Graph => {
            let numbered = |number: i64| Metadata::new().with("n", number);
            let entity = |id: &str, kind: &str, number| {
                Ok(Entity::new(EntityId::new(id)?, EntityType::new(kind)?).with_properties(numbered(number)))
            };
            let entities: Result<_, Error> =
                [entity("a", "t", 1), entity("b", "u", 2), entity("end", "t", 3)].into_iter().collect();
            let relationship = |id: &str, kind: &str, source: &str, target: &str, number| {
                let (source, target) = (EntityId::new(source)?, EntityId::new(target)?);
                let kind = RelationshipType::new(kind)?;
                let relationship = Relationship::new(RelationshipId::new(id)?, kind, source, target);
                Ok(relationship.with_properties(numbered(number)))
            };
            let relationships: Result<_, Error> = [
                relationship("r1", "knows", "a", "b", 1),
                relationship("r2", "likes", "b", "a", 2),
                relationship("r3", "likes", "b", "end", 3),
            ]
            .into_iter()
            .collect();
            let graph = &*stores.graph()?;
            graph.upsert_entities(entities?).await?;
            graph.upsert_relationships(relationships?).await?;
        }
        Contract::Blobs => {
            let bytes = Bytes::from_static(b"0123456789");
            stores.blobs()?.put_bytes(&BlobKey::new("plain")?, bytes).await?;
        }
        Contract::Tasks => {
            let new = NewBoard::new(vec![NewTask::new(TaskId::new("t")?, "title")]);
            stores.tasks()?.create_task_list(&board("board")?, new).await?;
        }
        Contract::KeyValue => {
            let key_value = &*stores.key_value()?;
            for key in ["key", "other"] {
                key_value.set(&BucketName::new("bucket")?, &Key::new(key)?, Bytes::from_static(b"1")).await?;
            }
        }
    }
    Ok(())
}

/// Makes a call that sets one option, and returns whether the option had its effect.
async fn call(stores: &StoreSet, option: RequestOption) -> CaseResult<bool> {
    match option.contract() {
        Contract::History => history(&*stores.history()?, option).await,
        Contract::Vectors => vectors(&*stores.vectors()?, option).await,
        Contract::Graph => graph(&*stores.graph()?, option).await,
        Contract::Blobs => blobs(&*stores.blobs()?, option).await,
        Contract::Tasks => tasks(&*stores.tasks()?, option).await,
        Contract::KeyValue => key_value(&*stores.key_value()?, option).await,
    }
}

fn thread(session: &str) -> Result<Thread, Error> {
    Thread::new("options", session)
}

fn board(agent: &str) -> Result<BoardId, Error> {
    BoardId::new("options", agent)
}

/// Returns the failure for an option that this version of the suite does not know.
fn unknown(option: RequestOption) -> Failure {
    Failure::Engine(format!("the suite has no call for the option {option}"))
}

/// Returns `true` if a conditional call failed because its condition did not hold.
fn lost<T>(answer: Result<T, Error>) -> CaseResult<bool> {
    match answer {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(true),
        Err(error) => Err(error.into()),
    }
}

async fn history(store: &dyn HistoryProvider, option: RequestOption) -> CaseResult<bool> {
    let texts = async |filter: MessageFilter| -> CaseResult<Vec<String>> {
        let found = store.tail_matching(&thread("said")?, &filter, None, 10).await?;
        Ok(found.iter().map(|stored| stored.text().to_owned()).collect())
    };
    match option {
        RequestOption::AppendIdempotencyKey => {
            let options = AppendOptions::default().with_idempotency_key(IdempotencyKey::new("once")?);
            let (thread, messages) = (thread("keyed")?, vec![ChatMessage::user("once")]);
            let first = store.append_many(&thread, messages.clone(), options.clone()).await?;
            let again = store.append_many(&thread, messages, options).await?;
            Ok(first == again && store.thread_info(&thread).await?.messages == 1)
        }
        RequestOption::AppendTtl => {
            let options = AppendOptions::default().with_ttl(Ttl::fixed(Duration::from_millis(1)));
            let thread = thread("brief")?;
            store.append_many(&thread, vec![ChatMessage::user("soon gone")], options).await?;
            for _ in 0..WAITS {
                if store.thread_info(&thread).await?.messages == 0 {
                    return Ok(true);
                }
                tokio::time::sleep(WAIT).await;
            }
            Ok(false)
        }
        RequestOption::AppendIfLast => {
            let options = AppendOptions::default().with_if_last(Seq::new(1));
            let thread = thread("conditional")?;
            lost(store.append_many(&thread, vec![ChatMessage::user("never")], options).await)
        }
        RequestOption::RemoveIfLast => {
            let removal = Removal::newest(1).with_if_last(Seq::new(1));
            lost(store.remove(&thread("never")?, removal).await)
        }
        RequestOption::RemoveIdempotencyKey => {
            let removal = Removal::newest(1).with_idempotency_key(IdempotencyKey::new("once")?);
            let thread = thread("popped")?;
            let messages = vec![ChatMessage::user("stays"), ChatMessage::user("goes")];
            store.append_many(&thread, messages, AppendOptions::default()).await?;
            let first = store.remove(&thread, removal.clone()).await?;
            let again = store.remove(&thread, removal).await?;
            Ok(first == again && store.thread_info(&thread).await?.messages == 1)
        }
        RequestOption::UpdateIfLast => {
            let update = MessageUpdate::appended(Seq::new(1), ChatMessage::user("never"));
            lost(store.update(&thread("never")?, update.with_if_last(Seq::new(1))).await)
        }
        RequestOption::UpdateIdempotencyKey => {
            let thread = thread("updated")?;
            store.append_many(&thread, vec![ChatMessage::user("old")], AppendOptions::default()).await?;
            let update = MessageUpdate::appended(Seq::new(1), ChatMessage::user("new"));
            let update = update.with_idempotency_key(IdempotencyKey::new("once")?);
            let first = store.update(&thread, update.clone()).await?;
            Ok(first == store.update(&thread, update).await?)
        }
        RequestOption::Fence => {
            let thread = thread("fenced")?;
            let fence = |number| AppendOptions::default().with_fence(FencingToken::new(number));
            store.append_many(&thread, vec![ChatMessage::user("first")], fence(2)).await?;
            lost(store.append_many(&thread, vec![ChatMessage::user("never")], fence(1)).await)
        }
        RequestOption::MessagesOfAgents => {
            Ok(texts(MessageFilter::new().include_agent(AgentId::new("first")?)).await? == ["one"])
        }
        RequestOption::MessagesOfRoles => {
            Ok(texts(MessageFilter::new().include_role(AgentRole::new("critic")?)).await? == ["two"])
        }
        option => Err(unknown(option)),
    }
}

async fn vectors(store: &dyn VectorStore, option: RequestOption) -> CaseResult<bool> {
    let request = SearchRequest::new(Embedding::try_from([1.0, 0.0])?);
    let request = match option {
        RequestOption::SearchFilter => request.with_filter(Filter::eq("n", 2)),
        RequestOption::SearchScoreMin => request.with_score_min(0.5),
        option => return Err(unknown(option)),
    };
    let expected = if option == RequestOption::SearchFilter { ["far"] } else { ["near"] };
    let hits = store.search(&CollectionName::new("c")?, &request).await?;
    Ok(hits.iter().map(|hit| hit.id.as_str()).collect::<Vec<_>>() == expected)
}

async fn graph(store: &dyn GraphStore, option: RequestOption) -> CaseResult<bool> {
    let alone = async |query: NeighborQuery| -> CaseResult<bool> {
        Ok(store.neighbors(&EntityId::new("end")?, &query).await?.entities.len() == 1)
    };
    let entities = async |query: EntityQuery, expected: &str| -> CaseResult<bool> {
        let found = store.find_entities(&query, PageRequest::first(10)).await?;
        Ok(found.items.iter().map(|entity| entity.id.as_str()).collect::<Vec<_>>() == [expected])
    };
    let relationships = async |query: RelationshipQuery, expected: &str| -> CaseResult<bool> {
        let found = store.find_relationships(&query, PageRequest::first(10)).await?;
        Ok(found.items.iter().map(|found| found.id.as_str()).collect::<Vec<_>>() == [expected])
    };
    let any = RelationshipQuery::default;
    let write = async |write: fn(Entity) -> EntityWrite| -> Result<_, Error> {
        let entity = Entity::new(EntityId::new("a")?, EntityType::new("t")?);
        store.write_entities(vec![write(entity)]).await
    };
    let relate = async |write: fn(Relationship) -> RelationshipWrite| -> Result<_, Error> {
        let (id, kind) = (RelationshipId::new("r1")?, RelationshipType::new("knows")?);
        let relationship = Relationship::new(id, kind, EntityId::new("a")?, EntityId::new("b")?);
        store.write_relationships(vec![write(relationship)]).await
    };
    match option {
        RequestOption::EntityCondition => lost(write(EntityWrite::create).await),
        RequestOption::EntityMode => {
            write(EntityWrite::merge).await?;
            let found = store.get_entities(&[EntityId::new("a")?]).await?.pop().flatten();
            Ok(found.is_some_and(|entity| entity.properties.get("n").is_some()))
        }
        RequestOption::RelationshipCondition => lost(relate(RelationshipWrite::create).await),
        RequestOption::RelationshipMode => {
            let given = store.get_relationships(&[RelationshipId::new("r1")?]).await?.pop().flatten();
            let before = expect::some("the relationship", given)?.properties;
            relate(RelationshipWrite::merge).await?;
            let found = store.get_relationships(&[RelationshipId::new("r1")?]).await?.pop().flatten();
            Ok(!before.is_empty() && found.is_some_and(|found| found.properties == before))
        }
        RequestOption::NeighborsDirection => {
            alone(NeighborQuery::depth(1).with_direction(larder_kernel::Direction::Out)).await
        }
        RequestOption::NeighborsTypes => {
            alone(NeighborQuery::depth(1).with_types([RelationshipType::new("knows")?])).await
        }
        RequestOption::EntitiesType => {
            entities(EntityQuery::default().with_type(EntityType::new("u")?), "b").await
        }
        RequestOption::EntitiesFilter => {
            entities(EntityQuery::default().with_filter(Filter::eq("n", 3)), "end").await
        }
        RequestOption::RelationshipsType => {
            relationships(any().with_type(RelationshipType::new("knows")?), "r1").await
        }
        RequestOption::RelationshipsSource => {
            relationships(any().with_source(EntityId::new("a")?), "r1").await
        }
        RequestOption::RelationshipsTarget => {
            relationships(any().with_target(EntityId::new("a")?), "r2").await
        }
        RequestOption::RelationshipsFilter => {
            relationships(any().with_filter(Filter::eq("n", 3)), "r3").await
        }
        option => Err(unknown(option)),
    }
}

async fn blobs(store: &dyn BlobStore, option: RequestOption) -> CaseResult<bool> {
    let put = async |name: &str, options: BlobPutOptions| -> CaseResult<_> {
        let key = BlobKey::new(name)?;
        store.put(&key, BlobBody::from(Bytes::from_static(b"x")), options).await?;
        Ok(store.head(&key).await?)
    };
    match option {
        RequestOption::BlobContentType => {
            let info = put("typed", BlobPutOptions::default().with_content_type("text/plain")).await?;
            Ok(info.content_type.as_deref() == Some("text/plain"))
        }
        RequestOption::BlobMetadata => {
            let info = put("described", BlobPutOptions::default().with_metadata("name", "value")).await?;
            Ok(info.metadata.get("name").map(String::as_str) == Some("value"))
        }
        RequestOption::BlobRange => {
            let options = BlobGetOptions::default().with_range(ByteRange::Bounded { start: 2, end: 4 });
            let read = store.get(&BlobKey::new("plain")?, options).await?;
            let bytes: Vec<Bytes> = read.bytes.try_collect().await?;
            Ok(read.range == (2..4) && bytes.concat() == b"23")
        }
        RequestOption::PresignContentType => {
            let request = PresignRequest::put(Duration::from_secs(60)).with_content_type("text/plain");
            let signed = store.presign(&BlobKey::new("signed")?, &request).await?;
            Ok(signed.headers.values().any(|value| value == "text/plain"))
        }
        option => Err(unknown(option)),
    }
}

async fn tasks(store: &dyn TaskStore, option: RequestOption) -> CaseResult<bool> {
    let (of, task) = (board("board")?, TaskId::new("t")?);
    let add = async |new: NewTask| -> CaseResult<_> {
        let id = new.id.clone();
        store.add_tasks(&of, vec![new]).await?;
        expect::some("the task added", store.get_task(&of, &id).await?)
    };
    let made = async |agent: &str, new: NewBoard| -> CaseResult<_> {
        let id = board(agent)?;
        store.create_task_list(&id, new).await?;
        expect::some("the board made", store.get_board(&id).await?)
    };
    let step = Transition::to(TaskStatus::InProgress);
    match option {
        RequestOption::BoardLabel => {
            let board = made("labelled", NewBoard::default().with_label("label")).await?;
            Ok(board.label.as_deref() == Some("label"))
        }
        RequestOption::BoardParent => {
            let parent = AgentId::new("board")?;
            let board = made("child", NewBoard::default().with_parent(parent.clone())).await?;
            Ok(board.parent == Some(parent))
        }
        RequestOption::TaskDescription => {
            let task = add(NewTask::new(TaskId::new("described")?, "title").with_description("text")).await?;
            Ok(task.description.as_deref() == Some("text"))
        }
        RequestOption::TaskMetadata => {
            let metadata = Metadata::new().with("n", 1);
            let task =
                add(NewTask::new(TaskId::new("tagged")?, "title").with_metadata(metadata.clone())).await?;
            Ok(task.metadata == metadata)
        }
        RequestOption::TasksStatuses => {
            let query = TaskQuery::in_statuses([TaskStatus::Succeeded]);
            Ok(store.list_tasks(&of, &query, PageRequest::first(10)).await?.items.is_empty())
        }
        RequestOption::TransitionExpected => {
            lost(store.update_status(&of, &task, step.with_expected(Revision::new(1 << 40))).await)
        }
        RequestOption::TransitionToken => {
            let leased = board("leased")?;
            store.create_task_list(&leased, NewBoard::new(vec![NewTask::new(task.clone(), "title")])).await?;
            store.claim(&leased, &WorkerId::new("worker")?, Duration::from_secs(3_600)).await?;
            let step = Transition::to(TaskStatus::Succeeded).with_token(FencingToken::new(1 << 40));
            lost(store.update_status(&leased, &task, step).await)
        }
        RequestOption::TransitionResult => {
            let task = store.update_status(&of, &task, step.with_result("half done")).await?;
            Ok(task.result.as_deref() == Some("half done"))
        }
        option => Err(unknown(option)),
    }
}

async fn key_value(store: &dyn KeyValueStore, option: RequestOption) -> CaseResult<bool> {
    let (bucket, key, value) = (BucketName::new("bucket")?, Key::new("key")?, Bytes::from_static(b"2"));
    let options = KeyValuePutOptions::default();
    let entries = async |query: KeyValueQuery| -> CaseResult<Vec<(String, bool)>> {
        let found = store.list_entries(&bucket, &query, PageRequest::first(10)).await?;
        Ok(found.items.into_iter().map(|item| (item.key.into(), item.value.is_some())).collect())
    };
    let (all, without) = (KeyValueQuery::prefix(""), |key: &str| (key.to_owned(), false));
    match option {
        RequestOption::EntriesFrom => Ok(entries(all.with_from(Key::new("l")?)).await? == [without("other")]),
        RequestOption::EntriesTo => Ok(entries(all.with_to(Key::new("l")?)).await? == [without("key")]),
        RequestOption::EntriesOrder => {
            Ok(entries(all.descending()).await? == [without("other"), without("key")])
        }
        RequestOption::EntriesValues => Ok(entries(all.with_values()).await?.iter().all(|(_, value)| *value)),
        RequestOption::ValueCondition => {
            let options = options.with_condition(KeyValueCondition::Absent);
            lost(store.put(&bucket, &key, value, options).await)
        }
        RequestOption::ValueTtl => {
            store.put(&bucket, &key, value, options.with_ttl(Duration::from_secs(3_600))).await?;
            Ok(store.get(&bucket, &key).await?.is_some_and(|entry| entry.expires_at.is_some()))
        }
        option => Err(unknown(option)),
    }
}

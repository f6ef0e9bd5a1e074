//! Encrypted data is unreadable, decrypts only at its own location, and keeps its size.
#![cfg(feature = "encryption")]

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{
    AgentId, AgentRole, AppendOptions, BlobGetOptions, BlobKey, BlobPutOptions, BlobStore, BlobStoreExt,
    ByteRange, Capability, ChatMessage, CollectionName, Document, DocumentId, Embedding, Entity, EntityId,
    EntityType, ErrorKind, FencingToken, GraphStore, HistoryProvider, HistoryProviderExt, IdempotencyKey,
    KeyValueStore, KeyValueStoreExt, Metadata, Namespace, Outcome, PutMode, RenameMode, RunId, Seq, Store,
    ToolCall, VectorStore,
};

use super::super::{EncryptionKey, EncryptionLayer, KeyRing, Layer, is_sealed};
use super::{Scripted, place, thread, value};
use crate::storage::{
    InMemoryBlobStore, InMemoryGraphStore, InMemoryHistoryProvider, InMemoryKeyValueStore,
    InMemoryVectorStore, MemoryBackend,
};

fn key(number: u8) -> EncryptionKey {
    EncryptionKey::new([number; 32])
}

fn layer(number: u8) -> EncryptionLayer {
    EncryptionLayer::new(KeyRing::new(&key(number)))
}

/// Returns `count` random characters from a range that begins at `first`.
fn chance(count: usize, first: u8, span: u64) -> String {
    let mut random = larder_kernel::random::Random::new(1);
    let mut next = || char::from(first + u8::try_from(random.draw() % span).unwrap());
    (0..count).map(|_| next()).collect()
}

/// Stores that compress leave encrypted messages as they are, because they are padded.
#[tokio::test]
async fn every_encrypted_message_is_recognized_and_plain_ones_are_not() {
    let behind = Arc::new(InMemoryHistoryProvider::new());
    let store = layer(1).history(Arc::clone(&behind) as Arc<dyn HistoryProvider>);
    let author = |name: &str| ChatMessage::user("text").with_author(AgentId::new(name).unwrap(), None);
    let long = "A".repeat(80);
    let mut messages =
        vec![ChatMessage::user(""), author("planner"), author(&"a".repeat(512)), author(&long)];
    for length in [1, 10, 100, 300, 500, 700, 900, 1_500, 9_000, 1_000_000] {
        messages.push(ChatMessage::user("a".repeat(length)));
        messages.push(ChatMessage::user(chance(length, b' ', 95)));
    }
    assert!(!messages.iter().any(is_sealed));
    store.append_many(&thread(), messages.clone(), AppendOptions::default()).await.unwrap();
    let stored = behind.all_messages(&thread()).await.unwrap();
    assert_eq!(stored.len(), messages.len());
    assert!(stored.iter().all(|stored| is_sealed(&stored.message)));
}

#[tokio::test]
async fn a_message_keeps_its_size_and_shows_nothing() {
    let behind = Arc::new(InMemoryHistoryProvider::new());
    let store = layer(1).history(Arc::clone(&behind) as Arc<dyn HistoryProvider>);
    let call = ToolCall::new("c", "secret-tool", "{}");
    let author = AgentId::new("secret-author").unwrap();
    let mut messages = vec![
        ChatMessage::user(""),
        ChatMessage::user("s"),
        ChatMessage::assistant("secret").with_tool_call(call).with_token_count(3),
        ChatMessage::user("secret").with_author(author, Some(AgentRole::new("secret-role").unwrap())),
        ChatMessage::user("secret").with_metadata(Metadata::new().with("secret", 1.5)),
        ChatMessage::user("secret").with_run(RunId::new("run-1").unwrap()),
    ];
    for length in [300, 500, 700, 900, 1_500, 2_500] {
        messages.push(ChatMessage::user(chance(length, b' ', 95)));
    }
    for length in [3_000, 100_000] {
        messages.push(ChatMessage::user("secret text ".repeat(length / 12)));
        messages.push(ChatMessage::user(chance(length, b' ', 95)));
    }
    store.append_many(&thread(), messages.clone(), AppendOptions::default()).await.unwrap();
    let read: Vec<ChatMessage> =
        store.all_messages(&thread()).await.unwrap().iter().map(|stored| (*stored.message).clone()).collect();
    assert_eq!(read, messages);
    let hidden = behind.all_messages(&thread()).await.unwrap();
    assert!(!format!("{hidden:?}").contains("secret-") && !format!("{hidden:?}").contains("secret text"));
    for (sealed, clear) in hidden.iter().zip(&messages) {
        assert_eq!(sealed.message.size_bytes(), clear.size_bytes());
    }
    let refused = store.append(&thread(), ChatMessage::user(chance(100_000, 0, 128))).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
    let stranger = layer(2).history(behind);
    assert_eq!(stranger.all_messages(&thread()).await.unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[tokio::test]
async fn an_append_repeated_after_a_rotation_finds_the_first() {
    let behind: Arc<dyn HistoryProvider> = Arc::new(InMemoryHistoryProvider::new());
    let append = async |store: &Arc<dyn HistoryProvider>, text: &str| {
        let options = AppendOptions::default().with_idempotency_key(IdempotencyKey::new("k").unwrap());
        store.append_many(&thread(), vec![ChatMessage::user(text)], options).await
    };
    let first = append(&layer(1).history(Arc::clone(&behind)), "text").await.unwrap();
    let rotated = EncryptionLayer::new(KeyRing::new(&key(2)).with_older(&key(1))).history(behind);
    assert_eq!(append(&rotated, "text").await.unwrap(), first);
    assert_eq!(append(&rotated, "other").await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(rotated.count_messages(&thread()).await.unwrap(), 1);
}

#[tokio::test]
async fn a_condition_that_fails_is_tried_with_one_key() {
    let (scripted, behind) = (Scripted::default(), Arc::new(InMemoryHistoryProvider::new()));
    let fenced = AppendOptions::default().with_fence(FencingToken::new(7));
    behind.append_many(&thread(), vec![ChatMessage::user("1")], fenced.clone()).await.unwrap();
    let ring = KeyRing::new(&key(3)).with_older(&key(2)).with_older(&key(1));
    let store = EncryptionLayer::new(ring).history(scripted.history(behind));
    let lower = AppendOptions::default().with_fence(FencingToken::new(6));
    for (options, field) in [(lower, "fence"), (fenced.with_if_last(Seq::new(9)), "if_last")] {
        let before = scripted.calls().len();
        let options = options.with_idempotency_key(IdempotencyKey::new("k").unwrap());
        let refused = store.append_many(&thread(), vec![ChatMessage::user("2")], options).await.unwrap_err();
        assert_eq!((refused.kind(), refused.field()), (ErrorKind::Conflict, Some(field)));
        assert_eq!(scripted.calls().len(), before + 1, "{field}");
    }
}

#[tokio::test]
async fn moved_data_is_corrupt() {
    let (bucket, name) = place();
    let behind = Arc::new(InMemoryKeyValueStore::new());
    let store = layer(1).key_value(Arc::clone(&behind) as Arc<dyn KeyValueStore>);
    store.set(&bucket, &name, value()).await.unwrap();
    let sealed = behind.get(&bucket, &name).await.unwrap().unwrap().value;
    assert!(!sealed.windows(5).any(|window| window == &value()[..]));
    let other = larder_kernel::Key::new("other").unwrap();
    behind.set(&bucket, &other, sealed).await.unwrap();
    assert_eq!(store.get(&bucket, &other).await.unwrap_err().kind(), ErrorKind::Corrupt);
    behind.set(&bucket, &name, value()).await.unwrap();
    assert_eq!(store.get(&bucket, &name).await.unwrap_err().kind(), ErrorKind::Corrupt);

    let behind = Arc::new(InMemoryVectorStore::new());
    let store = layer(1).vectors(Arc::clone(&behind) as Arc<dyn VectorStore>);
    let collection = CollectionName::new("c").unwrap();
    let ids = ["a", "b"].map(|id| DocumentId::new(id).unwrap());
    let put = async |store: &dyn VectorStore, id: &DocumentId, text: &str| {
        let embedding = Embedding::new(vec![1.0, 0.0]).unwrap();
        let document = Document::new(id.clone(), text).with_embedding(embedding);
        store.put(&collection, vec![document], PutMode::Upsert).await.unwrap();
    };
    put(&*store, &ids[0], "text").await;
    let sealed = behind.get(&collection, &ids).await.unwrap()[0].clone().unwrap().content;
    put(&*behind, &ids[1], &sealed).await;
    assert!(store.get(&collection, &ids[..1]).await.is_ok());
    assert_eq!(store.get(&collection, &ids).await.unwrap_err().kind(), ErrorKind::Corrupt);

    let behind = Arc::new(InMemoryGraphStore::new());
    let store = layer(1).graph(Arc::clone(&behind) as Arc<dyn GraphStore>);
    let entity = |id: &str, properties: Metadata| {
        Entity::new(EntityId::new(id).unwrap(), EntityType::new("t").unwrap()).with_properties(properties)
    };
    store.upsert_entities(vec![entity("a", Metadata::new().with("k", "v"))]).await.unwrap();
    let sealed = behind.get_entities(&[EntityId::new("a").unwrap()]).await.unwrap().remove(0).unwrap();
    behind.upsert_entities(vec![entity("b", sealed.properties)]).await.unwrap();
    let moved = store.get_entities(&[EntityId::new("b").unwrap()]).await;
    assert_eq!(moved.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn a_blob_opens_completely_and_by_range_and_never_altered() {
    let behind = Arc::new(InMemoryBlobStore::new());
    let store = layer(1).blobs(Arc::clone(&behind) as Arc<dyn BlobStore>);
    let (name, other) = (BlobKey::new("a").unwrap(), BlobKey::new("b").unwrap());
    for length in [0, 1, 65_535, 65_536, 65_537, 131_072, 200_000] {
        let bytes: Vec<u8> = (0..length).map(|n: usize| u8::try_from(n % 251).unwrap()).collect();
        let info = store.put_bytes(&name, bytes.clone().into()).await.unwrap();
        assert_eq!(info.size, u64::try_from(length).unwrap());
        assert_eq!(store.get_bytes(&name).await.unwrap(), bytes);
        for (start, end) in [(0, 1), (65_535, 65_537), (65_536, 65_537), (1, 131_073), (131_071, 199_999)] {
            let options = BlobGetOptions::default().with_range(ByteRange::Bounded { start, end });
            let (from, to) = (usize::try_from(start).unwrap(), usize::try_from(end).unwrap().min(length));
            match store.get_range(&name, options).await {
                Ok(read) => assert_eq!(read, bytes[from..to], "{length} {start} {end}"),
                Err(error) => {
                    assert!(from >= to && error.kind() == ErrorKind::InvalidInput, "{length} {start} {end}");
                }
            }
        }
        let sealed = behind.get_bytes(&name).await.unwrap();
        behind.put_bytes(&other, sealed.clone()).await.unwrap();
        assert_eq!(store.get_bytes(&other).await.unwrap_err().kind(), ErrorKind::Corrupt, "moved");
        store.copy(&name, &other).await.unwrap();
        assert_eq!(store.get_bytes(&other).await.unwrap(), bytes);
        for cut in [1, 16, 17, 65_552] {
            let Some(left) = sealed.len().checked_sub(cut) else { continue };
            behind.put_bytes(&name, sealed.slice(..left)).await.unwrap();
            assert_eq!(
                store.get_bytes(&name).await.unwrap_err().kind(),
                ErrorKind::Corrupt,
                "{length} less {cut}"
            );
        }
        let mut altered = sealed.to_vec();
        *altered.last_mut().unwrap() ^= 1;
        behind.put(&name, altered.into(), BlobPutOptions::default()).await.unwrap();
        assert_eq!(store.get_bytes(&name).await.unwrap_err().kind(), ErrorKind::Corrupt);
    }
    store.put_bytes(&name, value()).await.unwrap();
    let stranger = layer(2).blobs(behind);
    assert_eq!(stranger.get_bytes(&name).await.unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[tokio::test]
async fn a_version_opens_at_its_key_and_renames_are_refused() {
    let backend = MemoryBackend::new().with_blob_versions();
    let behind = Arc::new(InMemoryBlobStore::open(&backend, Namespace::new("n").unwrap()));
    let store = layer(1).blobs(Arc::clone(&behind) as Arc<dyn BlobStore>);
    let (name, other) = (BlobKey::new("a").unwrap(), BlobKey::new("b").unwrap());
    let bytes: Vec<u8> = (0..200_000).map(|n: usize| u8::try_from(n % 251).unwrap()).collect();
    store.put_bytes(&name, bytes.clone().into()).await.unwrap();
    store.put_bytes(&name, value()).await.unwrap();
    let versions: Vec<_> = store.list_versions(&name).await.unwrap().try_collect().await.unwrap();
    assert_eq!((versions.len(), versions[1].size), (2, 200_000));
    for (start, end) in [(0, 200_000), (65_535, 131_073)] {
        let options = BlobGetOptions::default().with_range(ByteRange::Bounded { start, end });
        let read = store.get_version(&name, &versions[1].id, options).await.unwrap();
        let pieces: Vec<Bytes> = read.bytes.try_collect().await.unwrap();
        assert_eq!(pieces.concat(), bytes[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()]);
    }
    assert!(behind.capabilities().has(Capability::BlobRename));
    assert!(!store.capabilities().has(Capability::BlobRename));
    let refused = store.rename(&name, &other, RenameMode::Replace).await.unwrap_err();
    assert_eq!((refused.kind(), refused.outcome()), (ErrorKind::Unsupported, Outcome::NotApplied));
    // The inner store moves the bytes, which do not open at another key.
    behind.rename(&name, &other, RenameMode::Refuse).await.unwrap();
    assert_eq!(store.get_bytes(&other).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

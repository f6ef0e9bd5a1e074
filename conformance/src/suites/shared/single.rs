//! One item for each contract, under the first id that a backend joins with the namespace.

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{
    AgentId, AppendOptions, BlobBody, BlobKey, BlobPutOptions, BlobStoreExt, BoardId, BucketName,
    ChatMessage, CollectionName, Contract, Document, DocumentId, Embedding, Entity, EntityId, EntityQuery,
    EntityType, ErrorKind, Key, Metadata, NewBoard, PageRequest, PutMode, Thread,
};

use crate::case::{CaseResult, implemented};
use crate::harness::StoreSet;

/// Returns `true` if a store of the contract accepts the id.
pub(super) fn accepts(contract: Contract, id: &str) -> bool {
    match contract {
        Contract::Blobs => BlobKey::new(id).is_ok(),
        _ => AgentId::new(id).is_ok(),
    }
}

/// Writes an item that contains the text.
pub(super) async fn write(stores: &StoreSet, contract: Contract, id: &str, text: &str) -> CaseResult {
    match contract {
        Contract::History => {
            let message = vec![ChatMessage::user(text)];
            let thread = Thread::new(id, "session")?;
            stores.history()?.append_many(&thread, message, AppendOptions::default()).await?;
        }
        Contract::Vectors => {
            let document = Document::new(DocumentId::new("document")?, text);
            let document = document.with_embedding(Embedding::try_from([1.0, 0.5])?);
            stores.vectors()?.put(&CollectionName::new(id)?, vec![document], PutMode::Upsert).await?;
        }
        Contract::Graph => {
            let entity = Entity::new(EntityId::new(id)?, EntityType::new("type")?);
            let entity = entity.with_properties(Metadata::new().with("text", text));
            stores.graph()?.upsert_entities(vec![entity]).await?;
        }
        Contract::Blobs => {
            let body = BlobBody::Bytes(Bytes::copy_from_slice(text.as_bytes()));
            stores.blobs()?.put(&BlobKey::new(id)?, body, BlobPutOptions::default()).await?;
        }
        Contract::Tasks => {
            let board = BoardId::new(id, "agent")?;
            stores.tasks()?.create_task_list(&board, NewBoard::default().with_label(text)).await?;
        }
        Contract::KeyValue => {
            let (bucket, key) = (BucketName::new(id)?, Key::new("key")?);
            let value = Bytes::copy_from_slice(text.as_bytes());
            stores.key_value()?.put(&bucket, &key, value, Default::default()).await?;
        }
    }
    Ok(())
}

/// Returns the texts of the item: none if it does not exist, and several if two writes met.
pub(super) async fn read(stores: &StoreSet, contract: Contract, id: &str) -> CaseResult<Vec<String>> {
    let text = |bytes: Bytes| String::from_utf8_lossy(&bytes).into_owned();
    Ok(match contract {
        Contract::History => {
            let found = stores.history()?.get_messages(&Thread::new(id, "session")?, 0, 10).await?.messages;
            found.iter().map(|stored| stored.message.text.clone()).collect()
        }
        Contract::Vectors => {
            let ids = [DocumentId::new("document")?];
            let found = stores.vectors()?.get(&CollectionName::new(id)?, &ids).await?;
            found.into_iter().flatten().map(|document| document.content).collect()
        }
        Contract::Graph => {
            let found = stores.graph()?.get_entities(&[EntityId::new(id)?]).await?;
            let texts = found.into_iter().flatten().map(|entity| entity.properties.get("text").cloned());
            texts.flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
        }
        Contract::Blobs => match stores.blobs()?.get_bytes(&BlobKey::new(id)?).await {
            Ok(bytes) => vec![text(bytes)],
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error.into()),
        },
        Contract::Tasks => {
            let found = stores.tasks()?.get_board(&BoardId::new(id, "agent")?).await?;
            found.into_iter().filter_map(|board| board.label).collect()
        }
        Contract::KeyValue => {
            let (bucket, key) = (BucketName::new(id)?, Key::new("key")?);
            let found = stores.key_value()?.get(&bucket, &key).await?;
            found.into_iter().map(|entry| text(entry.value)).collect()
        }
    })
}

/// The number of ids that a listing returns.
const LISTED_MAX: usize = 1_000;

/// Returns the ids that the namespace lists; `None` if the store does not implement the listing yet.
pub(super) async fn listed(stores: &StoreSet, contract: Contract) -> CaseResult<Option<Vec<String>>> {
    Ok(match contract {
        Contract::History => {
            let page = PageRequest::first(LISTED_MAX);
            let found = implemented(stores.history()?.list_threads(None, page).await)?;
            found.map(|found| found.items.iter().map(|info| info.thread.agent.to_string()).collect())
        }
        Contract::Vectors => {
            let page = PageRequest::first(LISTED_MAX);
            let found = implemented(stores.vectors()?.list_collections(page).await)?;
            found.map(|found| found.items.iter().map(|info| info.collection.to_string()).collect())
        }
        Contract::Graph => {
            let page = PageRequest::first(LISTED_MAX);
            let found = stores.graph()?.find_entities(&EntityQuery::default(), page).await;
            let found = implemented(found)?;
            found.map(|found| found.items.iter().map(|entity| entity.id.to_string()).collect())
        }
        Contract::Blobs => match implemented(stores.blobs()?.list("", None).await)? {
            Some(found) => {
                let keys = found.map_ok(|entry| entry.key.as_str().to_owned());
                Some(keys.try_collect().await?)
            }
            None => None,
        },
        Contract::Tasks => {
            let page = PageRequest::first(LISTED_MAX);
            let found = implemented(stores.tasks()?.list_boards(None, page).await)?;
            found.map(|found| found.items.iter().map(|board| board.id.conversation.to_string()).collect())
        }
        Contract::KeyValue => {
            let page = PageRequest::first(LISTED_MAX);
            let found = implemented(stores.key_value()?.list_buckets(page).await)?;
            found.map(|found| found.items.iter().map(|info| info.bucket.to_string()).collect())
        }
    })
}

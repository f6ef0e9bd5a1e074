//! Backends that scenarios run on. Each backend is opened twice, as two processes would open it.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use larder::Stores;
use larder_kernel::{
    Embedder, HistoryProvider, HistoryProviderExt, KeyValueStore, Namespace, PageRequest, VectorStore,
};

/// One backend through two handles with separate connections.
pub struct TestBackend {
    url: String,
    places: [larder::Backend; 2],
    rooms: Mutex<Vec<Stores>>,
}

impl TestBackend {
    pub async fn memory() -> Self {
        Self::open("memory:").await
    }

    /// Opens the URL twice. A backend in the memory of the process is opened once and shared.
    pub async fn open(url: &str) -> Self {
        let one = larder::Backend::open(url).await.unwrap();
        let two = if url == "memory:" { one.clone() } else { larder::Backend::open(url).await.unwrap() };
        Self { url: url.to_owned(), places: [one, two], rooms: Mutex::default() }
    }

    /// Returns the scheme of the URL: `memory`, `sqlite`, `postgres` and so on.
    pub fn name(&self) -> &str {
        self.url.split(':').next().unwrap_or_default()
    }

    /// Returns an empty namespace.
    pub async fn room(&self) -> Room {
        self.room_with(None).await
    }

    /// Returns an empty namespace whose vector store embeds texts.
    pub async fn room_with(&self, embedder: Option<Arc<dyn Embedder>>) -> Room {
        let namespace = Namespace::new(format!("everywhere-{}", uuid::Uuid::new_v4())).unwrap();
        let mut handles = Vec::new();
        for place in &self.places {
            let request =
                larder::driver::StoresRequest::new(namespace.clone()).with_embedder(embedder.clone());
            handles.push(place.stores_for(request).await);
        }
        self.rooms.lock().unwrap().push(handles[0].clone());
        Room { handles, next: AtomicUsize::new(0) }
    }

    /// Opens the stores of a room as a newly started process would.
    pub async fn reopened(&self, room: &Room) -> Stores {
        let namespace = room.handles[0].namespace();
        match &*self.url {
            "memory:" => self.places[0].stores(namespace).await,
            url => larder::Backend::open(url).await.unwrap().stores(namespace).await,
        }
    }

    /// Erases every room.
    pub async fn leave(&self) {
        let rooms = std::mem::take(&mut *self.rooms.lock().unwrap());
        for room in rooms {
            room.erase().await.unwrap();
        }
    }
}

/// A namespace through two handles; calls alternate between them.
pub struct Room {
    handles: Vec<Stores>,
    next: AtomicUsize,
}

impl Room {
    pub fn stores(&self) -> &Stores {
        &self.handles[self.next.fetch_add(1, Ordering::Relaxed) % self.handles.len()]
    }

    pub fn history(&self) -> Arc<dyn HistoryProvider> {
        self.stores().set().history().unwrap()
    }

    pub fn key_value(&self) -> Arc<dyn KeyValueStore> {
        self.stores().set().key_value().unwrap()
    }

    /// Returns the vector store, if the backend has one.
    pub fn vectors(&self) -> Option<Arc<dyn VectorStore>> {
        self.stores().set().vectors().ok()
    }

    /// Returns all stored messages and values as text.
    pub async fn everything_stored(&self) -> String {
        let (history, state) = (self.history(), self.key_value());
        let mut text = String::new();
        let threads = history.list_threads(None, PageRequest::default()).await.unwrap();
        assert!(threads.next.is_none());
        for info in threads.items {
            let messages = history.all_messages(&info.thread).await.unwrap();
            text.push_str(&serde_json::to_string(&messages).unwrap());
        }
        for info in state.list_buckets(PageRequest::default()).await.unwrap().items {
            let keys = state.list(&info.bucket, "", PageRequest::default()).await.unwrap();
            assert!(keys.next.is_none());
            for key in keys.items {
                let entry = state.get(&info.bucket, &key.key).await.unwrap();
                text.push_str(key.key.as_str());
                text.push_str(
                    &entry.map_or_else(String::new, |entry| String::from_utf8_lossy(&entry.value).into()),
                );
            }
        }
        text
    }
}

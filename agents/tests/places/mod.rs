//! Backends that scenarios run on, each opened twice, as two processes would have it.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use larder_capabilities::{Place, Stores, open_place};
use larder_kernel::{Embedder, HistoryProvider, KeyValueStore, Namespace, VectorStore};

/// One backend through two handles with connections of their own.
pub struct Backend {
    url: String,
    places: [Place; 2],
    rooms: Mutex<Vec<Stores>>,
}

impl Backend {
    pub async fn memory() -> Self {
        Self::open("memory:").await
    }

    /// Opens the URL twice; what lies in the memory of one process is opened once and shared.
    pub async fn open(url: &str) -> Self {
        let one = open_place(url).await.unwrap();
        let two = if url == "memory:" { one.clone() } else { open_place(url).await.unwrap() };
        Self { url: url.to_owned(), places: [one, two], rooms: Mutex::default() }
    }

    /// A namespace in which nothing is stored yet.
    pub async fn room(&self) -> Room {
        self.room_with(None).await
    }

    /// The same, where the vector store embeds texts itself.
    pub async fn room_with(&self, embedder: Option<Arc<dyn Embedder>>) -> Room {
        let namespace = Namespace::new(format!("everywhere-{}", uuid::Uuid::new_v4())).unwrap();
        let mut handles = Vec::new();
        for place in &self.places {
            handles.push(place.open(&namespace, embedder.clone()).await.unwrap());
        }
        self.rooms.lock().unwrap().push(handles[0].clone());
        Room { handles, next: AtomicUsize::new(0) }
    }

    /// The stores of a room as a process that starts now opens them.
    pub async fn reopened(&self, room: &Room) -> Stores {
        let namespace = room.handles[0].namespace();
        match &*self.url {
            "memory:" => self.places[0].open(namespace, None).await.unwrap(),
            url => open_place(url).await.unwrap().open(namespace, None).await.unwrap(),
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

/// A namespace through two handles; each call gives the other one.
pub struct Room {
    handles: Vec<Stores>,
    next: AtomicUsize,
}

impl Room {
    pub fn stores(&self) -> &Stores {
        &self.handles[self.next.fetch_add(1, Ordering::Relaxed) % self.handles.len()]
    }

    pub fn history(&self) -> Arc<dyn HistoryProvider> {
        self.stores().history().unwrap()
    }

    pub fn key_value(&self) -> Arc<dyn KeyValueStore> {
        self.stores().key_value().unwrap()
    }

    /// The vector store, where the backend has one.
    pub fn vectors(&self) -> Option<Arc<dyn VectorStore>> {
        self.stores().vectors().ok()
    }
}

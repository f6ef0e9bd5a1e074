//! Cosine similarity over stored bytes, and top-k selection.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use larder_kernel::{DocumentId, Embedding};

/// The number of parallel sums: twice as many as the widest registers hold.
const LANES: usize = 16;
/// The bytes of one step over the lanes.
const STEP_BYTES: usize = LANES * size_of::<f32>();
/// The bytes after which the 32-bit sums are added to a 64-bit sum, so that long vectors lose no precision.
const BLOCK_BYTES: usize = STEP_BYTES * 32;

/// Returns the bytes for an embedding column.
pub(super) fn to_bytes(embedding: &Embedding) -> Vec<u8> {
    embedding.as_slice().iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Returns the embedding in such a column; `None` if the bytes are malformed.
pub(in crate::sqlite) fn from_bytes(bytes: &[u8]) -> Option<Embedding> {
    let (values, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    Embedding::new(values.iter().map(|value| f32::from_le_bytes(*value)).collect::<Vec<_>>()).ok()
}

/// Returns the Euclidean length.
pub(in crate::sqlite) fn norm(embedding: &Embedding) -> f64 {
    embedding.as_slice().iter().map(|value| f64::from(*value) * f64::from(*value)).sum::<f64>().sqrt()
}

#[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest f32 is intended")]
fn narrow(value: f64) -> f32 {
    value as f32
}

/// The query embedding, scaled to length 1, so that products with it neither overflow nor underflow.
#[derive(Debug)]
pub(super) struct Query(Vec<f32>);

impl Query {
    pub(super) fn new(embedding: &Embedding) -> Self {
        let norm = norm(embedding);
        Self(embedding.as_slice().iter().map(|value| narrow(f64::from(*value) / norm)).collect())
    }

    /// Returns the cosine with a stored embedding; `None` if its dimension differs. Equal bytes give equal
    /// bits.
    pub(super) fn score(&self, stored: &[u8], norm: f64) -> Option<f32> {
        if stored.len() != self.0.len() * size_of::<f32>() {
            return None;
        }
        let blocks = self.0.chunks(BLOCK_BYTES / size_of::<f32>()).zip(stored.chunks(BLOCK_BYTES));
        let dot: f64 = blocks.map(|(query, stored)| dot(query, stored)).sum();
        // Adding zero turns -0 into 0, so that the two rank alike.
        Some(narrow((dot / norm).clamp(-1.0, 1.0)) + 0.0)
    }
}

/// Returns the dot product of one block.
fn dot(query: &[f32], stored: &[u8]) -> f64 {
    let (query_steps, query_rest) = query.as_chunks::<LANES>();
    let (stored_steps, stored_rest) = stored.as_chunks::<STEP_BYTES>();
    let mut sums = [0.0_f32; LANES];
    for (query, stored) in query_steps.iter().zip(stored_steps) {
        let (stored, _) = stored.as_chunks::<4>();
        for ((sum, query), stored) in sums.iter_mut().zip(query).zip(stored) {
            *sum += query * f32::from_le_bytes(*stored);
        }
    }
    let (stored_rest, _) = stored_rest.as_chunks::<4>();
    let rest = query_rest.iter().zip(stored_rest);
    let rest: f64 =
        rest.map(|(query, stored)| f64::from(*query) * f64::from(f32::from_le_bytes(*stored))).sum();
    sums.iter().map(|sum| f64::from(*sum)).sum::<f64>() + rest
}

/// A candidate for the result. Greater means worse, so that the top of the heap is the next to remove.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) score: f32,
    pub(super) id: DocumentId,
    /// The row of the document.
    pub(super) key: i64,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then_with(|| self.id.cmp(&other.id))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}

/// The best `limit` candidates whose score reaches the floor.
#[derive(Debug)]
pub(super) struct TopK {
    limit: usize,
    floor: f32,
    heap: BinaryHeap<Candidate>,
}

impl TopK {
    pub(super) fn new(limit: usize, floor: Option<f32>) -> Self {
        Self { limit, floor: floor.unwrap_or(f32::NEG_INFINITY), heap: BinaryHeap::new() }
    }

    /// Returns true if a document with that score and id would be kept. The caller asks before it copies the
    /// id.
    pub(super) fn wants(&self, score: f32, id: &[u8]) -> bool {
        if score < self.floor || self.limit == 0 {
            return false;
        }
        match self.heap.peek() {
            Some(worst) if self.heap.len() >= self.limit => {
                let order = score.total_cmp(&worst.score);
                order.is_gt() || (order.is_eq() && id < worst.id.as_str().as_bytes())
            }
            _ => true,
        }
    }

    /// Adds a candidate that [`wants`](Self::wants) accepted.
    pub(super) fn push(&mut self, candidate: Candidate) {
        self.heap.push(candidate);
        if self.heap.len() > self.limit {
            self.heap.pop();
        }
    }

    /// Returns true if no candidate can be kept.
    pub(super) fn is_closed(&self) -> bool {
        self.limit == 0
    }

    /// Returns the candidates, best first.
    pub(super) fn into_sorted(self) -> Vec<Candidate> {
        self.heap.into_sorted_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn embedding(length: f32, dimensions: usize, seed: u32) -> Embedding {
        let mut random = larder_kernel::random::Random::new(seed.into());
        let mut bits = || u32::try_from(random.draw() >> 41).unwrap();
        let values: Vec<f32> = (0..dimensions).map(|_| f32::from_bits(0x3f80_0000 | bits()) - 1.4).collect();
        let norm = values.iter().map(|value| value * value).sum::<f32>().sqrt();
        Embedding::new(values.iter().map(|value| value / norm * length).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn the_score_is_the_cosine_at_every_length_and_dimension() {
        for dimensions in [1, 3, 15, 16, 17, 511, 512, 513, 1_536, 16_000] {
            for length in [1.2e-19, 1.0, 1.5e19] {
                let (left, right) = (embedding(length, dimensions, 1), embedding(length, dimensions, 2));
                let expected = left.cosine(&right).unwrap();
                let score = Query::new(&left).score(&to_bytes(&right), norm(&right)).unwrap();
                assert!(
                    (f64::from(score) - expected).abs() < 1e-6,
                    "{dimensions} {length} {score} {expected}"
                );
                let same = Query::new(&left).score(&to_bytes(&left), norm(&left)).unwrap();
                assert!((same - 1.0).abs() < 1e-6 && same <= 1.0, "{dimensions} {length} {same}");
            }
        }
    }

    #[test]
    fn embeddings_read_back_bit_for_bit_and_invalid_bytes_are_refused() {
        let embedding = Embedding::new(vec![-0.0, f32::MIN_POSITIVE / 2.0, 0.1]).unwrap();
        let back = from_bytes(&to_bytes(&embedding)).unwrap();
        let bits = |embedding: &Embedding| -> Vec<u32> {
            embedding.as_slice().iter().map(|value| value.to_bits()).collect()
        };
        assert_eq!(bits(&back), bits(&embedding));
        assert!(from_bytes(&[0; 3]).is_none() && from_bytes(&[]).is_none());
        assert!(Query::new(&embedding).score(&[0; 8], 1.0).is_none());
    }

    #[test]
    fn the_best_hits_are_kept_and_ties_are_ordered_by_id() {
        let mut top = TopK::new(2, Some(0.0));
        for (score, id) in [(0.5, "c"), (-0.1, "x"), (0.5, "b"), (0.5, "a"), (0.4, "z")] {
            if top.wants(score, id.as_bytes()) {
                top.push(Candidate { score, id: DocumentId::new(id).unwrap(), key: 0 });
            }
        }
        let ids: Vec<_> = top.into_sorted().into_iter().map(|kept| kept.id.as_str().to_owned()).collect();
        assert_eq!(ids, ["a", "b"]);
    }
}

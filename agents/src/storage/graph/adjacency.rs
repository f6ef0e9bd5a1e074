//! The adjacency lists of one direction, for traversals: the entities at the other ends of each entity's
//! relationships.
//!
//! All lists are in one array, so that a traversal touches few pages of memory. Separate lists would be
//! scattered among other allocations. The capacity of a list is a power of two. A list that outgrows it moves
//! to a space of twice the size, and the old space goes to the next list that needs that size. Adding an
//! entry takes amortized constant time, and the array is at most about four times as large as its contents.

use petgraph::graph::NodeIndex;

/// The smallest capacity of a list.
const ROOM_MIN: usize = 4;
/// The number of capacities, which exceeds any memory size.
const SIZES: usize = 48;

/// The span of an entity's list in the array.
#[derive(Debug, Default, Clone, Copy)]
struct Span {
    start: usize,
    length: u32,
    /// The capacity as a power of two times [`ROOM_MIN`], plus one; 0 without a space.
    size: u8,
}

impl Span {
    fn room(self) -> usize {
        self.size.checked_sub(1).map_or(0, |doublings| ROOM_MIN << doublings)
    }

    fn length(self) -> usize {
        usize::try_from(self.length).unwrap_or(usize::MAX)
    }
}

#[derive(Debug)]
pub(super) struct Adjacency {
    spans: Vec<Span>,
    entries: Vec<NodeIndex>,
    /// The free spaces, by size.
    free: [Vec<usize>; SIZES],
}

impl Default for Adjacency {
    fn default() -> Self {
        Self { spans: Vec::new(), entries: Vec::new(), free: [const { Vec::new() }; SIZES] }
    }
}

impl Adjacency {
    /// Returns the entries of an entity, one for each relationship.
    pub(super) fn of(&self, node: NodeIndex) -> &[NodeIndex] {
        let span = self.span(node);
        &self.entries[span.start..span.start + span.length()]
    }

    fn span(&self, node: NodeIndex) -> Span {
        self.spans.get(node.index()).copied().unwrap_or_default()
    }

    fn of_mut(&mut self, node: NodeIndex) -> &mut [NodeIndex] {
        let span = self.span(node);
        &mut self.entries[span.start..span.start + span.length()]
    }

    pub(super) fn add(&mut self, node: NodeIndex, other: NodeIndex) {
        if self.spans.len() <= node.index() {
            self.spans.resize(node.index() + 1, Span::default());
        }
        let mut span = self.span(node);
        if span.length() == span.room() {
            span = self.moved(span);
        }
        self.entries[span.start + span.length()] = other;
        span.length += 1;
        self.spans[node.index()] = span;
    }

    /// Moves a list to a space of twice the size.
    fn moved(&mut self, old: Span) -> Span {
        let size = old.size + 1;
        let mut new = Span { size, ..old };
        new.start = self.free[usize::from(size)].pop().unwrap_or_else(|| {
            let start = self.entries.len();
            self.entries.resize(start + new.room(), NodeIndex::end());
            start
        });
        self.entries.copy_within(old.start..old.start + old.length(), new.start);
        self.release(old);
        new
    }

    fn release(&mut self, span: Span) {
        if span.size > 0 {
            self.free[usize::from(span.size)].push(span.start);
        }
    }

    /// Removes a single entry, even if there are several: each represents a relationship.
    pub(super) fn remove_one(&mut self, node: NodeIndex, other: NodeIndex) {
        let entries = self.of_mut(node);
        // The newest entry is the last, and the deletion of a hub begins with the newest.
        if let Some(at) = entries.iter().rposition(|there| *there == other) {
            let last = entries.len() - 1;
            entries.swap(at, last);
            self.spans[node.index()].length -= 1;
        }
    }

    /// Removes all entries of another entity.
    pub(super) fn remove_all(&mut self, node: NodeIndex, other: NodeIndex) {
        let (entries, mut kept) = (self.of_mut(node), 0);
        for at in 0..entries.len() {
            if entries[at] != other {
                entries[kept] = entries[at];
                kept += 1;
            }
        }
        if let Some(span) = self.spans.get_mut(node.index()) {
            span.length = u32::try_from(kept).unwrap_or(u32::MAX);
        }
    }

    /// Removes an entity's list and returns the entities in it, each once.
    pub(super) fn take(&mut self, node: NodeIndex) -> Vec<NodeIndex> {
        let mut others = self.of(node).to_vec();
        others.sort_unstable();
        others.dedup();
        let span = self.span(node);
        self.release(span);
        if let Some(span) = self.spans.get_mut(node.index()) {
            *span = Span::default();
        }
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: usize) -> NodeIndex {
        NodeIndex::new(number)
    }

    #[test]
    fn lists_grow_concurrently_and_reuse_slots() {
        let mut adjacency = Adjacency::default();
        for other in 0..100 {
            for list in 0..20 {
                adjacency.add(node(list), node(other * 20 + list));
            }
        }
        for list in 0..20 {
            let expected: Vec<NodeIndex> = (0..100).map(|other| node(other * 20 + list)).collect();
            assert_eq!(adjacency.of(node(list)), expected);
        }
        let held = adjacency.entries.len();
        for list in 0..20 {
            assert_eq!(adjacency.take(node(list)).len(), 100);
            assert_eq!(adjacency.of(node(list)), []);
        }
        for list in 20..40 {
            (0..100).for_each(|other| adjacency.add(node(list), node(other)));
        }
        assert_eq!(adjacency.entries.len(), held);
        assert_eq!(adjacency.of(node(1_000)), []);
    }

    #[test]
    fn entries_are_removed_one_at_a_time_or_together() {
        let mut adjacency = Adjacency::default();
        [1, 2, 1, 3, 1].into_iter().for_each(|other| adjacency.add(node(0), node(other)));
        adjacency.remove_one(node(0), node(1));
        adjacency.remove_one(node(0), node(9));
        assert_eq!(adjacency.of(node(0)).iter().filter(|other| **other == node(1)).count(), 2);
        adjacency.remove_all(node(0), node(1));
        assert_eq!(adjacency.take(node(0)), [node(2), node(3)]);
        adjacency.remove_one(node(7), node(1));
        adjacency.remove_all(node(7), node(1));
        assert_eq!(adjacency.take(node(7)), []);
    }
}

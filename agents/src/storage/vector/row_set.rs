//! Sets of a block's rows.

/// The largest number of rows in a block, and the capacity of a [`RowSet`].
pub(super) const BLOCK_ROWS_MAX: usize = 1024;
const WORDS: usize = BLOCK_ROWS_MAX / 64;

/// A set of a block's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowSet([u64; WORDS]);

impl RowSet {
    pub(super) const EMPTY: Self = Self([0; WORDS]);

    /// Returns the first `count` rows.
    pub(super) fn first(count: usize) -> Self {
        let mut set = Self::EMPTY;
        set.0[..count / 64].fill(u64::MAX);
        if !count.is_multiple_of(64) {
            set.0[count / 64] = (1 << (count % 64)) - 1;
        }
        set
    }

    pub(super) fn set(&mut self, row: usize, member: bool) {
        let bit = 1 << (row % 64);
        if member {
            self.0[row / 64] |= bit;
        } else {
            self.0[row / 64] &= !bit;
        }
    }

    pub(super) fn contains(&self, row: usize) -> bool {
        self.0[row / 64] >> (row % 64) & 1 == 1
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|word| usize::try_from(word.count_ones()).unwrap_or_default()).sum()
    }

    /// Calls `visit` for each row, in ascending order.
    pub(super) fn each(&self, mut visit: impl FnMut(usize)) {
        for (at, word) in self.0.iter().enumerate() {
            let mut left = *word;
            while left != 0 {
                visit(at * 64 + usize::try_from(left.trailing_zeros()).unwrap_or_default());
                left &= left - 1;
            }
        }
    }

    /// Returns the rows in ascending order.
    pub(super) fn rows(&self) -> Vec<usize> {
        let mut rows = Vec::with_capacity(self.len());
        self.each(|row| rows.push(row));
        rows
    }

    fn join(mut self, other: Self, step: fn(u64, u64) -> u64) -> Self {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word = step(*word, other);
        }
        self
    }

    pub(super) fn and(self, other: Self) -> Self {
        self.join(other, |left, right| left & right)
    }

    pub(super) fn or(self, other: Self) -> Self {
        self.join(other, |left, right| left | right)
    }

    pub(super) fn without(self, other: Self) -> Self {
        self.join(other, |left, right| left & !right)
    }
}

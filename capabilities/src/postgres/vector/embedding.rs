//! Conversion of embeddings to and from columns.

use larder_kernel::Embedding;

/// Returns the bytes for an embedding column.
pub(super) fn to_bytes(embedding: &Embedding) -> Vec<u8> {
    embedding.as_slice().iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Returns the embedding in such a column; `None` if the bytes are malformed.
pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Embedding> {
    let (values, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    Embedding::new(values.iter().map(|value| f32::from_le_bytes(*value)).collect::<Vec<_>>()).ok()
}

/// Returns the embedding scaled to length 1. The 32-bit sums of pgvector would overflow or underflow with the
/// lengths that embeddings may have.
pub(crate) fn direction(embedding: &Embedding) -> impl Iterator<Item = f32> {
    let squares = embedding.as_slice().iter().map(|value| f64::from(*value) * f64::from(*value));
    let norm = squares.sum::<f64>().sqrt();
    embedding.as_slice().iter().map(move |value| narrow(f64::from(*value) / norm))
}

/// Returns the score of two embeddings; `None` if their dimensions differ. Equal embeddings give equal bits.
pub(super) fn score(left: &Embedding, right: &Embedding) -> Option<f32> {
    // Adding zero turns -0 into 0, so that the two rank alike.
    left.cosine(right).map(|cosine| narrow(cosine) + 0.0)
}

#[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest f32 is intended")]
fn narrow(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embeddings_read_back_bit_for_bit_and_invalid_bytes_are_refused() {
        let embedding = Embedding::new(vec![-0.0, f32::MIN_POSITIVE / 2.0, 0.1]).unwrap();
        let back = from_bytes(&to_bytes(&embedding)).unwrap();
        let bits = |embedding: &Embedding| -> Vec<u32> {
            embedding.as_slice().iter().map(|value| value.to_bits()).collect()
        };
        assert_eq!(bits(&back), bits(&embedding));
        assert!(from_bytes(&[0; 3]).is_none() && from_bytes(&[]).is_none());
    }

    #[test]
    fn a_direction_has_length_one() {
        for length in [1.2e-19_f32, 1.0, 1.5e19] {
            let embedding = Embedding::new(vec![0.6 * length, -0.8 * length]).unwrap();
            let direction: Vec<f32> = direction(&embedding).collect();
            assert!((direction[0] - 0.6).abs() < 1e-6 && (direction[1] + 0.8).abs() < 1e-6);
        }
    }
}

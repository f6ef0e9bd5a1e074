//! CRC-64/NVME of pieces that several threads read in parallel, combined in order.

use std::sync::OnceLock;

use crc_fast::{CrcAlgorithm, checksum_combine};

use crate::fs::CHUNK_BYTES;

/// A running checksum.
pub(crate) type Crc = crc_fast::Digest;

const ALGORITHM: CrcAlgorithm = CrcAlgorithm::Crc64Nvme;
/// The polynomial, with its lowest term in the highest bit, as in the checksum (NVM Express, section
/// 5.2.1.3.4).
const POLYNOMIAL: u64 = 0x9A6C_9329_AC4B_C9B5;

/// Returns the checksum of no bytes.
pub(crate) fn begin() -> Crc {
    Crc::new(ALGORITHM)
}

/// Returns the checksum of data with the checksum `before`, followed by a piece of this many bytes.
pub(crate) fn join(before: u64, piece: u64, piece_bytes: usize) -> u64 {
    if piece_bytes == CHUNK_BYTES {
        shift_by_chunk(before) ^ piece
    } else {
        checksum_combine(ALGORITHM, before, piece, larder_kernel::check::size(piece_bytes))
    }
}

/// Returns the effect of a chunk of zeros on a checksum, without the contribution of the zeros.
///
/// The effect is linear in the bits of the checksum. `checksum_combine` computes this map again for each
/// length, which takes as long as reading a chunk. For chunks it is computed once.
fn shift_by_chunk(checksum: u64) -> u64 {
    static IMAGES: OnceLock<[u64; 64]> = OnceLock::new();
    let images_of_bits = IMAGES.get_or_init(|| {
        // The highest bit is the polynomial 1; each bit below it is the one above times x.
        let one = 1 << 63;
        let mut image = checksum_combine(ALGORITHM, one, 0, larder_kernel::check::size(CHUNK_BYTES));
        let mut images = [0; 64];
        for bit in images.iter_mut().rev() {
            *bit = image;
            image = (image >> 1) ^ if image & 1 == 1 { POLYNOMIAL } else { 0 };
        }
        images
    });
    let bit = |at: usize| if checksum >> at & 1 == 1 { images_of_bits[at] } else { 0 };
    (0..64).fold(0, |sum, at| sum ^ bit(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(piece: &[u8]) -> u64 {
        crc_fast::checksum(ALGORITHM, piece)
    }

    #[test]
    fn pieces_put_together_have_the_checksum_of_the_whole() {
        // The check value in the catalog of parametrized CRC algorithms.
        assert_eq!(of(b"123456789"), 0xAE8B_1486_0A79_9888);
        let body: Vec<u8> = (0..=250).cycle().take(CHUNK_BYTES * 3 + 12_345).collect();
        for length in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, CHUNK_BYTES * 3, body.len()] {
            let body = &body[..length];
            let joined = body.chunks(CHUNK_BYTES).fold(0, |sum, piece| join(sum, of(piece), piece.len()));
            let mut running = begin();
            running.update(body);
            assert_eq!((joined, running.finalize()), (of(body), of(body)), "{length} bytes");
        }
    }
}

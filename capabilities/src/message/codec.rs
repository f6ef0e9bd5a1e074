//! Compression of stored messages.
//!
//! The first byte of a stored body is a tag, which names the form of the rest. Each message is compressed
//! separately, so removing or replacing one rewrites no other and leaves no part of its text behind. The
//! dictionary is fixed, ships with the program and was not derived from anybody's data. A new dictionary gets
//! a new tag, and the old ones stay readable.
//!
//! Messages of the encryption layer are not compressed. The layer pads a message to its plain size, and
//! compression would undo the padding: the stored length would reveal how well the plain text compresses.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::LazyLock;

use larder_kernel::limits::{MESSAGE_BYTES_MAX, METADATA_BYTES_MAX};
use zstd::bulk::{Compressor, Decompressor};
use zstd::dict::{DecoderDictionary, EncoderDictionary};

/// The tag of a body that is not compressed.
pub(super) const RAW: u8 = 0;
/// The tag of a zstd frame with the first dictionary.
const ZSTD_1: u8 = 1;
const DICTIONARY_1: &[u8] = include_bytes!("dictionary_1.txt");
/// The fastest level. Higher ones save few percent of a message and cost up to half as much again.
const LEVEL: i32 = 1;
/// Smaller bodies save too few bytes for the time of each read.
const COMPRESSED_BYTES_MIN: usize = 512;
/// A body is compressed only if it shrinks by this factor. Text that shrinks less, such as base64, would cost
/// time at each read and save little.
const FACTOR_MIN: usize = 2;
/// Compressing more keeps megabytes of memory for each thread, so a larger body gets a separate compressor.
const SHARED_BYTES_MAX: usize = 128 * 1024;
/// The maximum size of a body that is compressed, and of one that is read: a message of which each byte is
/// escaped in JSON. It limits the memory that a damaged frame can claim.
const BODY_BYTES_MAX: usize = 6 * (MESSAGE_BYTES_MAX + METADATA_BYTES_MAX) + 64 * 1024;

static ENCODER_1: LazyLock<EncoderDictionary<'static>> =
    LazyLock::new(|| EncoderDictionary::copy(DICTIONARY_1, LEVEL));
static DECODER_1: LazyLock<DecoderDictionary<'static>> =
    LazyLock::new(|| DecoderDictionary::copy(DICTIONARY_1));

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Compresses a body that begins with the tag `RAW`, if that pays.
pub(super) fn compress(body: Vec<u8>) -> Vec<u8> {
    match body.split_first() {
        Some((_, rest)) if (COMPRESSED_BYTES_MIN..=BODY_BYTES_MAX).contains(&rest.len()) => {
            compressed(rest).unwrap_or(body)
        }
        _ => body,
    }
}

/// Returns the compressed form with its tag; `None` if it is too large.
fn compressed(body: &[u8]) -> Option<Vec<u8>> {
    // zstd gives up when the output is full.
    let mut output = vec![ZSTD_1; 1 + body.len() / FACTOR_MIN];
    let target = output.get_mut(1..)?;
    let written = if body.len() > SHARED_BYTES_MAX {
        Compressor::with_prepared_dictionary(&ENCODER_1).ok()?.compress_to_buffer(body, target).ok()?
    } else {
        COMPRESSOR.with_borrow_mut(|shared| {
            if shared.is_none() {
                *shared = Compressor::with_prepared_dictionary(&ENCODER_1).ok();
            }
            shared.as_mut()?.compress_to_buffer(body, target).ok()
        })?
    };
    output.truncate(1 + written);
    output.shrink_to_fit();
    Some(output)
}

/// Returns the body without its tag, decompressed if necessary; `None` if it is damaged or of an unknown
/// form.
pub(super) fn decompress(body: &[u8]) -> Option<Cow<'_, [u8]>> {
    match body.split_first()? {
        (&RAW, rest) => Some(Cow::Borrowed(rest)),
        (&ZSTD_1, frame) => decompressed(frame).map(Cow::Owned),
        _ => None,
    }
}

fn decompressed(frame: &[u8]) -> Option<Vec<u8>> {
    // The frame states its size; nothing is allocated for a frame that states none or too much.
    let size = usize::try_from(zstd::zstd_safe::get_frame_content_size(frame).ok()??).ok()?;
    if size > BODY_BYTES_MAX {
        return None;
    }
    let mut body = Vec::new();
    body.try_reserve_exact(size).ok()?;
    DECOMPRESSOR.with_borrow_mut(|shared| {
        if shared.is_none() {
            *shared = Decompressor::with_prepared_dictionary(&DECODER_1).ok();
        }
        shared.as_mut()?.decompress_to_buffer(frame, &mut body).ok()
    })?;
    (body.len() == size).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Vec<u8> {
        [&[RAW], text.as_bytes()].concat()
    }

    fn assert_reads_back(text: &str) -> usize {
        let stored = compress(raw(text));
        assert_eq!(decompress(&stored).unwrap(), text.as_bytes());
        stored.len()
    }

    /// FNV-1a.
    fn checksum(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// A changed dictionary makes stored messages unreadable: add a new one with a new tag instead.
    #[test]
    fn the_first_dictionary_never_changes() {
        assert_eq!((DICTIONARY_1.len(), checksum(DICTIONARY_1)), (6_975, 0x6c1d_79ce_5f48_35af));
    }

    /// A body of the first release. Later versions of the library must read it.
    #[test]
    fn frames_of_earlier_releases_are_read() {
        const STORED: [u8; 55] = [
            1, 40, 181, 47, 253, 96, 30, 3, 101, 1, 0, 192, 54, 52, 49, 51, 53, 48, 48, 125, 10, 84, 100,
            101, 108, 32, 115, 97, 105, 100, 103, 97, 105, 110, 46, 32, 5, 0, 204, 121, 86, 41, 48, 108, 92,
            89, 80, 140, 95, 61, 153, 205, 143, 2, 2,
        ];
        let head = "{\"role\":\"assistant\",\"created_at_us\":1764135000123456}\n";
        let text = format!("{head}{}", "The model said it again. ".repeat(40));
        assert_eq!(decompress(&STORED).unwrap(), text.as_bytes());
    }

    #[test]
    fn every_size_reads_back_and_repetitive_text_is_stored_small() {
        for length in [0, 1, 511, 512, 513, 9_000, SHARED_BYTES_MAX, SHARED_BYTES_MAX + 1, MESSAGE_BYTES_MAX]
        {
            let text: String = "weather report, ".chars().cycle().take(length).collect();
            let stored = assert_reads_back(&text);
            assert!(length < COMPRESSED_BYTES_MIN || stored < 200 + length / 50, "{length}: {stored}");
        }
        let code = include_str!("codec.rs");
        assert!(assert_reads_back(code) * 2 < code.len());
    }

    #[test]
    fn messages_that_do_not_halve_stay_uncompressed() {
        let mut random = larder_kernel::random::Random::new(1);
        let mut letter = || char::from(b'!' + u8::try_from(random.below(64)).unwrap());
        let letters: String = (0..4_096).map(|_| letter()).collect();
        assert_eq!(compress(raw(&letters)), raw(&letters));
        let short = "a".repeat(COMPRESSED_BYTES_MIN - 1);
        assert_eq!(compress(raw(&short)), raw(&short));
    }

    #[test]
    fn damaged_and_foreign_bodies_are_refused_without_much_memory() {
        let text = "The model said it again. ".repeat(400);
        let stored = compress(raw(&text));
        for end in 0..stored.len() {
            assert_eq!(decompress(&stored[..end]), None, "{end}");
        }
        for at in 0..stored.len() {
            for bit in 0..8 {
                let mut damaged = stored.clone();
                damaged[at] ^= 1 << bit;
                // Any result but a panic or an allocation beyond the limit; a frame has no checksum.
                if let Some(body) = decompress(&damaged) {
                    assert!(body.len() <= BODY_BYTES_MAX);
                }
            }
        }
        for tag in 2..=255 {
            assert_eq!(decompress(&[&[tag], &stored[1..]].concat()), None);
        }
        // A frame of 2^62 bytes, one byte above the limit, and one without a size.
        let frame = |size: u64| {
            [&[ZSTD_1, 0x28, 0xb5, 0x2f, 0xfd, 0xe0][..], &size.to_le_bytes()[..], &[1, 0, 0]].concat()
        };
        for size in [1 << 62, u64::try_from(BODY_BYTES_MAX + 1).unwrap()] {
            assert_eq!(decompress(&frame(size)), None);
        }
        assert_eq!(decompress(&[ZSTD_1, 0x28, 0xb5, 0x2f, 0xfd, 0, 0x58, 1, 0, 0]), None);
        assert_eq!(decompress(&[]), None);
    }
}
